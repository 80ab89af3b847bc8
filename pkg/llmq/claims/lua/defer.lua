#!lua
-- defer.lua: give a claim back until a time, keeping what was learned.
-- KEYS[1] llmq:<env>:clm:<tenant hash>:{<rid>}  hash  state, fence, owner, next_ms, attempts, trying, progress,
--   cancelled
-- ARGV[1] now_ms    integer, "" = server TIME
-- ARGV[2] owner     string, as taken
-- ARGV[3] fence     integer, as taken
-- ARGV[4] delay_ms  integer >= 0, the claim can't be taken before
-- ARGV[5] attempts  integer >= 0, attempts begun so far, of all takes
-- ARGV[6] progress  string, integers by commas, handed to the next take
-- ARGV[7] keep_ms   integer > 0, life of a claim that has to be written anew
-- Returns {code}; code 1 deferred, 2 kept, for its request is cancelled and its owner stores that, 0 not ours any more.
local claim = KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local owner, fence, delay = ARGV[2], ARGV[3], tonumber(ARGV[4])
local attempts, progress, keep = ARGV[5], ARGV[6], tonumber(ARGV[7])

local c = redis.call('HMGET', claim, 'state', 'fence', 'owner', 'cancelled')
if c[1] and (c[1] == 'done' or c[2] ~= fence or c[3] ~= owner) then
  return { 0 }
end
if c[4] == '1' then
  return { 2 }
end
redis.call('HSET', claim, 'state', 'deferred', 'fence', fence, 'owner', owner,
  'next_ms', string.format('%.0f', now + delay), 'attempts', attempts, 'trying', 0, 'progress', progress)
if not c[1] then -- the store was emptied while we ran; what was tried must not be tried anew
  redis.call('PEXPIREAT', claim, string.format('%.0f', now + keep))
end
return { 1 }
