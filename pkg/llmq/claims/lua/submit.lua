#!lua
-- submit.lua: record a request under its id, or say what the id already stands for: the body of its first take, whichever
-- way that came, and before any take the body of its record.
-- KEYS[1] llmq:<env>:sub:<tenant hash>:{<rid>}  hash  hash, created_ms, deadline_ms, sent, kept
-- KEYS[2] llmq:<env>:clm:<tenant hash>:{<rid>}  hash  hash
-- ARGV[1] now_ms       integer, "" = server TIME
-- ARGV[2] body_hash    string, of operation, model and canonical body
-- ARGV[3] deadline_ms  integer
-- ARGV[4] keep_ms      integer > 0, how long after its deadline the record lives
-- ARGV[5] kept         integer, 1 its caller comes back for its end: the scripts that store one keep it for keep_ms; else 0, and an
--   earlier 1 stands
-- Returns {code, sent, deadline_ms}; code 1 created, 0 known with this body, -1 known with another, and nothing is changed.
local sub, claim = KEYS[1], KEYS[2]
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local hash, deadline, keep, kept = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'

local known = redis.call('HMGET', sub, 'hash', 'sent', 'deadline_ms')
local stands = redis.call('HGET', claim, 'hash') or known[1]
if stands and stands ~= hash then
  return { -1, tonumber(known[2] or 0), tonumber(known[3] or 0) }
end
if known[1] == hash then
  if kept then redis.call('HSET', sub, 'kept', 1) end
  return { 0, tonumber(known[2]), tonumber(known[3]) }
end
-- A record of another body is none: that body's message is refused where it is taken.
redis.call('HSET', sub, 'hash', hash, 'created_ms', string.format('%.0f', now),
  'deadline_ms', string.format('%.0f', deadline), 'sent', 0)
if kept then redis.call('HSET', sub, 'kept', 1) end
redis.call('PEXPIREAT', sub, string.format('%.0f', math.max(now, deadline) + keep))
return { 1, 0, deadline }
