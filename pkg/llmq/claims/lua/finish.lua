#!lua
-- finish.lua: store a request's result under its claim's fence, and wake who waits.
-- KEYS[1] llmq:<env>:clm:<tenant hash>:{<rid>}  hash    state, fence, owner, cancelled, dead
-- KEYS[2] llmq:<env>:res:<tenant hash>:{<rid>}  string  the result
-- KEYS[3] llmq:<env>:sub:<tenant hash>:{<rid>}  hash    kept
-- ARGV[1] now_ms       integer, "" = server TIME
-- ARGV[2] owner        string, as taken
-- ARGV[3] fence        integer, as taken
-- ARGV[4] result       string, opaque
-- ARGV[5] deadline_ms  integer, of the request
-- ARGV[6] result_ms    integer > 0, how long after now and the deadline the result lives; one that is kept lives keep_ms from now on
-- ARGV[7] keep_ms      integer > 0, the same for the claim, which outlives it
-- ARGV[8] channel      string, told with the fence once the result is stored
-- ARGV[9] kind         integer, 1 the result says that the request was cancelled, 2 the end is dead: take.lua lets a later
--   generation begin anew; else 0
-- Returns {code}; code 1 stored, now or by an earlier try of this owner; 2 not stored, for the request is cancelled and
--   its result must say so; 0 another owner has the claim or stored a result.
local claim, result_key, sub = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local owner, fence, result = ARGV[2], ARGV[3], ARGV[4]
local deadline, result_ms, keep, channel = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local kind = ARGV[9]

local c = redis.call('HMGET', claim, 'state', 'fence', 'owner', 'cancelled')
if c[1] and (c[2] ~= fence or c[3] ~= owner) then
  return { 0 }
end
if c[1] == 'done' then
  return { 1 }
end
if c[4] == '1' and kind ~= '1' then
  return { 2 }
end
-- No claim at all: the store was emptied while we ran. The result is worth more than the rule.
local later = math.max(now, deadline)
local ends = later + result_ms
if redis.call('HGET', sub, 'kept') == '1' then ends = math.max(ends, now + keep) end
redis.call('SET', result_key, result, 'PXAT', string.format('%.0f', ends))
redis.call('HSET', claim, 'state', 'done', 'fence', fence, 'owner', owner)
if kind == '2' then redis.call('HSET', claim, 'dead', 1) end
redis.call('PEXPIREAT', claim, string.format('%.0f', later + keep))
redis.call('PUBLISH', channel, fence)
return { 1 }
