#!lua
-- take.lua: count a call against its key's calls of the last minute, or say when one more fits.
-- KEYS[1] llmq:<env>:rate:{<kid>}  zset  call id -> when it began in ms; at most limit of them
-- ARGV[1] now_ms     integer, "" = server TIME
-- ARGV[2] limit      integer > 0, calls in any window
-- ARGV[3] window_ms  integer > 0
-- ARGV[4] call       string, unique to the call; repeated after a lost answer it counts once
-- Returns {code, left, retry_ms, reset_ms}; code 1 counted, left more fit now; 0 full, and one fits after retry_ms.
--   reset_ms: when all fit again, where no other call comes.
local key = KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local limit, window, call = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now - window))
local used = redis.call('ZCARD', key)
local counted = redis.call('ZSCORE', key, call)
if not counted and used >= limit then
  -- As many must leave as are above the limit, which may have been lowered, and one more.
  local leaves = redis.call('ZSCORE', key, redis.call('ZRANGE', key, used - limit, used - limit)[1])
  local last = redis.call('ZSCORE', key, redis.call('ZRANGE', key, -1, -1)[1])
  return { 0, 0, math.max(1, tonumber(leaves) + window - now), math.max(1, tonumber(last) + window - now) }
end
if not counted then
  redis.call('ZADD', key, string.format('%.0f', now), call)
  redis.call('PEXPIREAT', key, string.format('%.0f', now + window))
  used = used + 1
end
return { 1, math.max(0, limit - used), 0, window }
