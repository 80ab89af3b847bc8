#!lua
-- take.lua: take the claim on a request, or say why not.
-- KEYS[1] llmq:<env>:clm:<tenant hash>:{<rid>}  hash  state, fence, owner, until_ms, next_ms, attempts, takeovers, hash
-- ARGV[1] now_ms       integer, "" = server TIME
-- ARGV[2] owner        string, unique to this take; a repeat with it changes nothing but the lease
-- ARGV[3] lease_ms     integer > 0
-- ARGV[4] deadline_ms  integer, of the request
-- ARGV[5] keep_ms      integer > 0, how long after now and the deadline the claim lives
-- ARGV[6] body_hash    string, of operation, model and canonical body; the first take's stands, a wiped claim has none
-- Returns {code, fence, attempts, takeovers, wait_ms};
--   code 1 taken, 0 a result is stored, -1 another's lease runs for wait_ms, -2 deferred for wait_ms,
--   -3 the id stands for another body.
local claim = KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local owner, lease, deadline, keep = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local hash = ARGV[6]

local c = redis.call('HMGET', claim, 'state', 'fence', 'owner', 'until_ms', 'next_ms', 'attempts', 'takeovers', 'hash')
local state = c[1]
local fence, until_ms, next_ms = tonumber(c[2] or 0), tonumber(c[4] or 0), tonumber(c[5] or 0)
local attempts, takeovers = tonumber(c[6] or 0), tonumber(c[7] or 0)

if c[8] and c[8] ~= hash then
  return { -3, fence, attempts, takeovers, 0 }
end
if state == 'done' then
  return { 0, fence, attempts, takeovers, 0 }
end
if state == 'running' and c[3] ~= owner and until_ms > now then
  return { -1, fence, attempts, takeovers, until_ms - now }
end
if state == 'deferred' and next_ms > now then
  return { -2, fence, attempts, takeovers, next_ms - now }
end
if state ~= 'running' or c[3] ~= owner then
  if state == 'running' then takeovers = takeovers + 1 end
  fence = fence + 1
end
redis.call('HSET', claim, 'state', 'running', 'fence', fence, 'owner', owner,
  'until_ms', string.format('%.0f', now + lease), 'attempts', attempts, 'takeovers', takeovers, 'hash', hash)
redis.call('PEXPIREAT', claim, string.format('%.0f', math.max(now, deadline) + keep))
return { 1, fence, attempts, takeovers, 0 }
