#!lua
-- broken.lua: end a request whose owner died in the midst of its stream: its caller has a part of the reply, so that
-- nobody may run it anew. The store's clock decides when the owner is dead.
-- KEYS[1] llmq:<env>:clm:<tenant hash>:{<rid>}  hash    state, fence, owner, until_ms, cancelled, streamed
-- KEYS[2] llmq:<env>:res:<tenant hash>:{<rid>}  string  the result
-- KEYS[3] llmq:<env>:sub:<tenant hash>:{<rid>}  hash    kept
-- ARGV[1] now_ms       integer, "" = server TIME
-- ARGV[2] result       string, opaque; says that the stream broke
-- ARGV[3] deadline_ms  integer, of the request
-- ARGV[4] result_ms    integer > 0, how long after now and the deadline the result lives; one that is kept lives keep_ms from now on
-- ARGV[5] keep_ms      integer > 0, the same for the claim, which outlives it
-- ARGV[6] channel      string, told with the fence once the result is stored
-- Returns {code, wait_ms}; code 1 ended so; 0 it has ended, so or otherwise; -1 its owner's lease runs for wait_ms;
--   -2 it is nobody's, or has said nothing so far, or is cancelled: whoever takes it decides.
local claim, result_key, sub = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local result, deadline, result_ms, keep = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local channel = ARGV[6]

local c = redis.call('HMGET', claim, 'state', 'fence', 'until_ms', 'cancelled', 'streamed')
if c[1] == 'done' then
  return { 0, 0 }
end
if c[1] ~= 'running' then
  return { -2, 0 }
end
if tonumber(c[3]) > now then
  return { -1, tonumber(c[3]) - now }
end
if c[4] == '1' or not c[5] then
  return { -2, 0 }
end
local later = math.max(now, deadline)
local fence = tonumber(c[2]) + 1 -- whoever lost it can store nothing any more
local ends = later + result_ms
if redis.call('HGET', sub, 'kept') == '1' then ends = math.max(ends, now + keep) end
redis.call('SET', result_key, result, 'PXAT', string.format('%.0f', ends))
redis.call('HSET', claim, 'state', 'done', 'fence', fence, 'owner', '')
redis.call('PEXPIREAT', claim, string.format('%.0f', later + keep))
redis.call('PUBLISH', channel, fence)
return { 1, 0 }
