#!lua
-- attend.lua: a process says that it lives, one of those that may run calls without the store should that be lost, and learns how
-- many they are.
-- KEYS[1] llmq:<env>:cap:{cap}:epoch    string  when admissions begin, in ms; none: the store was wiped
-- KEYS[2] llmq:<env>:cap:{cap}:heard    string  when any of them was last heard, in ms; none: there are none who may
-- KEYS[3] llmq:<env>:cap:{cap}:callers  zset    process -> when it was last heard, in ms
-- ARGV[1] now_ms   integer, "" = server TIME
-- ARGV[2] process  string
-- ARGV[3] says     string: joins, may (it has been among them for long enough), leaves
-- Returns {callers, anew}; anew 1: it was not among them.
local floor, tonumber, format = math.floor, tonumber, string.format
local epoch, heard, callers = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + floor(t[2] / 1000)
end
-- include epoch.lua
local text = format('%d', now)
if ARGV[3] == 'leaves' then
  redis.call('ZREM', callers, ARGV[2])
  local left = redis.call('ZCARD', callers)
  if left == 0 then redis.call('DEL', heard) end -- nobody can be lost
  return { left, 0 }
end
opens_at(epoch, heard, now) -- before it counts as heard
if ARGV[3] == 'may' then
  redis.call('SET', heard, text)
else
  redis.call('SET', heard, text, 'XX') -- who ends soon, and says nothing of it, is not missed
end
redis.call('ZREMRANGEBYSCORE', callers, '-inf', format('%d', now - AWAY_MS))
local anew = redis.call('ZADD', callers, text, ARGV[2])
redis.call('PEXPIRE', callers, AWAY_MS)
return { redis.call('ZCARD', callers), anew }
