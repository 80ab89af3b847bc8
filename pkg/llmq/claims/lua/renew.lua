#!lua
-- renew.lua: keep a claim for another lease, and note how far its owner has come.
-- KEYS[1] llmq:<env>:clm:<tenant hash>:{<rid>}  hash  state, fence, owner, until_ms, attempts, trying, progress,
--   cancelled
-- ARGV[1] now_ms    integer, "" = server TIME
-- ARGV[2] owner     string, as taken
-- ARGV[3] fence     integer, as taken
-- ARGV[4] lease_ms  integer > 0
-- ARGV[5] keep_ms   integer > 0, life of a claim that has to be written anew
-- ARGV[6] attempts  integer >= 0, attempts begun so far, of all takes
-- ARGV[7] progress  string, integers by commas, handed to the next take
-- ARGV[8] trying    integer, 1: an attempt follows that is not counted yet, and may be begun unheard; else 0
-- Returns {code}; code 1 kept, 2 kept, but its request is cancelled, 0 lost to another owner or to a result.
local claim = KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local owner, fence, lease, keep = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local attempts, progress, trying = ARGV[6], ARGV[7], ARGV[8]

local c = redis.call('HMGET', claim, 'state', 'fence', 'owner', 'cancelled')
if c[1] and (c[1] ~= 'running' or c[2] ~= fence or c[3] ~= owner) then
  return { 0 }
end
redis.call('HSET', claim, 'state', 'running', 'fence', fence, 'owner', owner,
  'until_ms', string.format('%.0f', now + lease), 'attempts', attempts, 'trying', trying, 'progress', progress)
if not c[1] then -- the store was emptied while we ran; our call is still in flight
  redis.call('PEXPIREAT', claim, string.format('%.0f', now + keep))
end
if c[4] == '1' then
  return { 2 }
end
return { 1 }
