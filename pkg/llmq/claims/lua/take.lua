#!lua
-- take.lua: take the claim on a request, or say why not.
-- KEYS[1] llmq:<env>:clm:<tenant hash>:{<rid>}  hash    state, fence, owner, until_ms, next_ms, attempts, trying, progress,
--   takeovers, cancelled, hash, gen, dead; trying 1: its owner may have begun an attempt that attempts does not count
-- KEYS[2] llmq:<env>:res:<tenant hash>:{<rid>}  string  the result
-- KEYS[3] llmq:<env>:sub:<tenant hash>:{<rid>}  hash    deadline_ms, sent, kept
-- ARGV[1] now_ms       integer, "" = server TIME
-- ARGV[2] owner        string, unique to this take; a repeat with it changes nothing but the lease
-- ARGV[3] lease_ms     integer > 0
-- ARGV[4] deadline_ms  integer, of the request
-- ARGV[5] keep_ms      integer > 0, how long after now and the deadline the claim lives
-- ARGV[6] body_hash    string, of operation, model and canonical body; the first take's stands, a wiped claim has none
-- ARGV[7] generation   integer >= 0, how often the request was sent again from the dead-letter queue. A higher one than before
--   begins anew where nobody runs it: over a dead end, never over another
-- Returns {code, fence, attempts, takeovers, wait_ms, flags, progress...};
--   code 1 taken, 0 a result is stored, -6 one of a dead end is, -1 another's lease runs for wait_ms, -2 deferred for wait_ms,
--   -3 the id stands for another body, -4 the deadline has passed and nobody runs it: expire.lua may end it,
--   -5 a later generation was seen;
--   flags 1: it is cancelled, whoever took it stores that and nothing else; 2: its end is kept; 3: both;
--   progress: the integers of the last renewal or deferral.
local claim, result_key, sub = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local owner, lease, deadline, keep = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local hash, generation = ARGV[6], tonumber(ARGV[7])

local c = redis.call('HMGET', claim, 'state', 'fence', 'owner', 'until_ms', 'next_ms', 'attempts', 'takeovers',
  'hash', 'cancelled', 'progress', 'gen', 'dead', 'trying')
local state = c[1]
local fence, until_ms, next_ms = tonumber(c[2] or 0), tonumber(c[4] or 0), tonumber(c[5] or 0)
local attempts, takeovers, cancelled = tonumber(c[6] or 0), tonumber(c[7] or 0), tonumber(c[9] or 0)
local progress, gen = c[10] or '', tonumber(c[11] or 0)
local anew, trying = generation > gen, c[13] == '1' and 1 or 0

local function answer(code, wait)
  local flags = cancelled
  if redis.call('HGET', sub, 'kept') == '1' then flags = flags + 2 end
  local reply = { code, fence, attempts, takeovers, wait, flags }
  for n in string.gmatch(progress, '%d+') do
    reply[#reply + 1] = tonumber(n)
  end
  return reply
end

if c[8] and c[8] ~= hash then
  return answer(-3, 0)
end
if state == 'done' and not (anew and c[12] == '1') then
  return answer(c[12] == '1' and -6 or 0, 0)
end
if generation < gen then
  return answer(-5, 0)
end
local ours = state == 'running' and c[3] == owner
if state == 'running' and not ours and until_ms > now then
  return answer(-1, until_ms - now)
end
if cancelled == 0 and now >= deadline then
  if state == 'running' and not ours then -- told, not kept: it died over the request
    takeovers, attempts = takeovers + 1, attempts + trying
  end
  return answer(-4, 0)
end
if cancelled == 0 and not anew and state == 'deferred' and next_ms > now then
  return answer(-2, next_ms - now)
end
if not ours then
  if state == 'running' then takeovers, attempts = takeovers + 1, attempts + trying end
  fence, trying = fence + 1, 1
end
local lives = string.format('%.0f', math.max(now, deadline) + keep)
if anew then
  attempts, takeovers, progress = 0, 0, ''
  if state == 'done' then redis.call('DEL', result_key) end
  redis.call('HSET', claim, 'gen', generation, 'dead', 0, 'progress', progress)
  local known = redis.call('HGET', sub, 'deadline_ms')
  if known and tonumber(known) < deadline then -- who asks again by the same id waits for this run
    redis.call('HSET', sub, 'deadline_ms', string.format('%.0f', deadline), 'sent', 1)
    redis.call('PEXPIREAT', sub, lives)
  end
end
redis.call('HSET', claim, 'state', 'running', 'fence', fence, 'owner', owner,
  'until_ms', string.format('%.0f', now + lease), 'attempts', attempts, 'trying', trying, 'takeovers', takeovers, 'hash', hash)
redis.call('PEXPIREAT', claim, lives)
return answer(1, 0)
