#!lua
-- cancel.lua: end a request that nobody runs, or tell its owner to stop. A dead end is none: the request's message may have
-- been sent again, and wait.
-- KEYS[1] llmq:<env>:clm:<tenant hash>:{<rid>}  hash    state, fence, owner, until_ms, cancelled, dead
-- KEYS[2] llmq:<env>:res:<tenant hash>:{<rid>}  string  the result
-- KEYS[3] llmq:<env>:sub:<tenant hash>:{<rid>}  hash    deadline_ms, kept
-- ARGV[1] now_ms     integer, "" = server TIME
-- ARGV[2] result     string, opaque; says cancelled
-- ARGV[3] result_ms  integer > 0, how long after now and the deadline the result lives; one that is kept lives keep_ms from now on
-- ARGV[4] keep_ms    integer > 0, the same for the claim, which outlives it
-- ARGV[5] wake       string, channel that is told with the fence once the result is stored
-- ARGV[6] stop       string, what the channels of workers begin with; an owner's worker is its part before the slash
-- Returns {code, known}; code 1 cancelled, now or before: nobody will run it; 2 its owner is told and will store that it
--   was cancelled; 0 it had ended for good, and nothing is changed. known 0: neither submitted nor taken so far.
local claim, result_key, sub = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local result, result_ms, keep = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local wake, stop = ARGV[5], ARGV[6]

local c = redis.call('HMGET', claim, 'state', 'fence', 'owner', 'until_ms', 'cancelled', 'dead')
if c[1] == 'done' and c[6] ~= '1' then
  if c[5] == '1' then return { 1, 1 } end
  return { 0, 1 }
end
if c[1] == 'running' and tonumber(c[4]) > now then
  redis.call('HSET', claim, 'cancelled', 1)
  redis.call('PUBLISH', stop .. string.match(c[3], '^[^/]*'), c[3])
  return { 2, 1 }
end
local deadline = redis.call('HGET', sub, 'deadline_ms')
local known = (c[1] or deadline) and 1 or 0
local later = math.max(now, tonumber(deadline or 0))
local fence = tonumber(c[2] or 0) + 1 -- whoever lost it can store nothing any more
local ends = later + result_ms
if redis.call('HGET', sub, 'kept') == '1' then ends = math.max(ends, now + keep) end
redis.call('SET', result_key, result, 'PXAT', string.format('%.0f', ends))
redis.call('HSET', claim, 'state', 'done', 'fence', fence, 'owner', '', 'cancelled', 1)
if c[6] == '1' then redis.call('HSET', claim, 'dead', 0) end
redis.call('PEXPIREAT', claim, string.format('%.0f', later + keep))
redis.call('PUBLISH', wake, fence)
return { 1, known }
