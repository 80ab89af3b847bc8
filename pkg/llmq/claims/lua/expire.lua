#!lua
-- expire.lua: end a request whose deadline has passed without an outcome. Nothing else stores that end, so it is the
-- store's clock that decides, once for all workers.
-- KEYS[1] llmq:<env>:clm:<tenant hash>:{<rid>}  hash    state, fence, owner, until_ms, cancelled, hash, gen, dead
-- KEYS[2] llmq:<env>:res:<tenant hash>:{<rid>}  string  the result
-- KEYS[3] llmq:<env>:sub:<tenant hash>:{<rid>}  hash    kept
-- ARGV[1] now_ms       integer, "" = server TIME
-- ARGV[2] owner        string, unique to whoever asks: the claim's owner, or one that has taken nothing
-- ARGV[3] result       string, opaque; says expired
-- ARGV[4] deadline_ms  integer, of the request
-- ARGV[5] result_ms    integer > 0, how long after now the result lives; one that is kept lives keep_ms
-- ARGV[6] keep_ms      integer > 0, the same for the claim, which outlives it
-- ARGV[7] body_hash    string, as for take.lua
-- ARGV[8] channel      string, told with the fence once the result is stored
-- ARGV[9] generation   integer >= 0, as for take.lua: a later one's end replaces a dead one
-- Returns {code, wait_ms}; code 1 expired, now or by an earlier try of this owner; 0 another end is stored; -1 another's
--   lease runs for wait_ms; -2 the deadline is wait_ms away; -3 the id stands for another body; -5 a later
--   generation was seen; 2 the request is cancelled.
local claim, result_key, sub = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local owner, result, deadline = ARGV[2], ARGV[3], tonumber(ARGV[4])
local result_ms, keep, hash, channel = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8]
local generation = tonumber(ARGV[9])

local c = redis.call('HMGET', claim, 'state', 'fence', 'owner', 'until_ms', 'cancelled', 'hash', 'gen', 'dead')
local state, fence, gen = c[1], tonumber(c[2] or 0), tonumber(c[7] or 0)
if c[6] and c[6] ~= hash then
  return { -3, 0 }
end
if state == 'done' and not (generation > gen and c[8] == '1') then
  if c[3] == owner then return { 1, 0 } end
  return { 0, 0 }
end
if generation < gen then
  return { -5, 0 }
end
local ours = state == 'running' and c[3] == owner
if state == 'running' and not ours and tonumber(c[4]) > now then
  return { -1, tonumber(c[4]) - now }
end
if c[5] == '1' then
  return { 2, 0 }
end
if now < deadline then
  return { -2, deadline - now }
end
if not ours then fence = fence + 1 end -- whoever lost it can store nothing any more
local lives = result_ms
if redis.call('HGET', sub, 'kept') == '1' then lives = math.max(lives, keep) end
redis.call('SET', result_key, result, 'PXAT', string.format('%.0f', now + lives))
redis.call('HSET', claim, 'state', 'done', 'fence', fence, 'owner', owner, 'hash', hash)
if generation > gen then redis.call('HSET', claim, 'gen', generation, 'dead', 0) end
redis.call('PEXPIREAT', claim, string.format('%.0f', now + keep))
redis.call('PUBLISH', channel, fence)
return { 1, 0 }
