#!lua
-- renew.lua: keep a claim for another lease.
-- KEYS[1] llmq:<env>:clm:<tenant hash>:{<rid>}  hash  state, fence, owner, until_ms
-- ARGV[1] now_ms    integer, "" = server TIME
-- ARGV[2] owner     string, as taken
-- ARGV[3] fence     integer, as taken
-- ARGV[4] lease_ms  integer > 0
-- ARGV[5] keep_ms   integer > 0, life of a claim that has to be written anew
-- Returns {code}; code 1 kept, 0 lost to another owner or to a result.
local claim = KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local owner, fence, lease, keep = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local c = redis.call('HMGET', claim, 'state', 'fence', 'owner')
if c[1] and (c[1] ~= 'running' or c[2] ~= fence or c[3] ~= owner) then
  return { 0 }
end
redis.call('HSET', claim, 'state', 'running', 'fence', fence, 'owner', owner,
  'until_ms', string.format('%.0f', now + lease))
if not c[1] then -- the store was emptied while we ran; our call is still in flight
  redis.call('PEXPIREAT', claim, string.format('%.0f', now + keep))
end
return { 1 }
