#!lua
-- defer.lua: give a claim back until a time, keeping what was learned.
-- KEYS[1] llmq:<env>:clm:<tenant hash>:{<rid>}  hash  state, fence, owner, next_ms, attempts
-- ARGV[1] now_ms    integer, "" = server TIME
-- ARGV[2] owner     string, as taken
-- ARGV[3] fence     integer, as taken
-- ARGV[4] delay_ms  integer >= 0, the claim can't be taken before
-- ARGV[5] attempts  integer >= 0, real attempts so far, of all takes
-- Returns {code}; code 1 deferred, 0 not ours any more.
local claim = KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local owner, fence, delay, attempts = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]

local c = redis.call('HMGET', claim, 'state', 'fence', 'owner')
if c[1] == 'done' or c[2] ~= fence or c[3] ~= owner then
  return { 0 }
end
redis.call('HSET', claim, 'state', 'deferred', 'next_ms', string.format('%.0f', now + delay), 'attempts', attempts)
return { 1 }
