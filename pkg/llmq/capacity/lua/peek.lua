#!lua
-- peek.lua: what is known of a target, and nothing is changed. (No flags=no-writes: miniredis takes TIME for a write.)
-- KEYS[1] llmq:<env>:cap:{cap}:epoch  string  when admissions begin, in ms; none: the store was wiped
-- KEYS[2] llmq:<env>:cap:{cap}:<alias>@<target>:state    hash  the law's fields, rpm, tpm, breaker, calls by ending, ran_<lane>
-- KEYS[3] llmq:<env>:cap:{cap}:<alias>@<target>:rt       zset  call id -> lease end in ms
-- KEYS[4] llmq:<env>:cap:{cap}:<alias>@<target>:bg       zset  the same
-- KEYS[5] llmq:<env>:cap:{cap}:<alias>@<target>:bulk     zset  the same
-- KEYS[6] llmq:<env>:cap:{cap}:<alias>@<target>:waiting  zset  call id of a waiting rt call -> deadline in ms
-- KEYS[7] llmq:<env>:cap:{cap}:@<provider>:slots         zset  call id -> lease end in ms, over all its targets
-- KEYS[8] llmq:<env>:cap:{cap}:@<provider>:state         hash  rpm, tpm
-- ARGV[1] now_ms   integer, "" = server TIME
-- ARGV[2] law      string, see LawConfig
-- ARGV[3] rpm      string: the target's budget of calls, see rates.lua; "" is none
-- ARGV[4] tpm      string: of tokens
-- ARGV[5] shared_rpm  string: the provider's
-- ARGV[6] shared_tpm  string: of tokens
-- Returns {quarantine_ms, rt, bg, bulk, waiting, calls_left, tokens_left, calls_used, tokens_used,
-- shared_in_use, shared_calls_left, shared_tokens_left, breaker, open_ms, ok, throttled, failed, abandoned,
-- lapsed, then what ran_rt, ran_bg and ran_bulk hold: calls that ended, ok or failed, and for how many ms they held
-- their slots; then law.facts}; -1 where no budget is set.
-- include law.lua
-- include rates.lua
-- include breaker.lua
local epoch, state, waiting, shared_slots, provider = KEYS[1], KEYS[2], KEYS[6], KEYS[7], KEYS[8]
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local after = string.format('(%d', now)
local function live(key) return redis.call('ZCOUNT', key, after, '+inf') end

local QUARANTINE_MS = 15000 -- as in admit.lua
local opens = tonumber(redis.call('GET', epoch) or nil)
if not opens or opens - now > QUARANTINE_MS then opens = now + QUARANTINE_MS end
local fields = redis.call('HMGET', state, 'rpm', 'tpm', 'breaker', 'ok', 'throttled', 'failed', 'abandoned', 'lapsed', unpack(law.FIELDS))
local function facts_of(flow)
  local facts = law.facts(law.load(now, ARGV[2], flow), now)
  for i = 1, 11 do facts[i] = floor(facts[i]) end -- fails where it is no number
  return facts
end
local fine, facts
if fields[9] and match(fields[9], '^%d %d+ %d+ %d+ ') then fine, facts = pcall(facts_of, { unpack(fields, 9) }) end
if not fine then facts = facts_of({}) end
local function left(config, text)
  return rates.left(now, config, config ~= '' and rates.from(config, text, opens))
end
local calls_left, calls_used = left(ARGV[3], fields[1])
local tokens_left, tokens_used = left(ARGV[4], fields[2])
local shared = redis.call('HMGET', provider, 'rpm', 'tpm')
local shared_calls_left, shared_tokens_left = left(ARGV[5], shared[1]), (left(ARGV[6], shared[2]))
local b = breaker.load(now, fields[3] or nil)
local ran = redis.call('HMGET', state, 'ran_rt', 'ran_bg', 'ran_bulk')
local function ran_of(i)
  local calls, busy_ms = match(ran[i] or '', '^(%d+) (%d+)$')
  return tonumber(calls or 0), tonumber(busy_ms or 0)
end
local rt_ran, rt_ms = ran_of(1)
local bg_ran, bg_ms = ran_of(2)
local bulk_ran, bulk_ms = ran_of(3)
local function count(i) return tonumber(fields[i] or nil) or 0 end
return {
  math.max(0, opens - now), live(KEYS[3]), live(KEYS[4]), live(KEYS[5]), live(waiting),
  calls_left, tokens_left, calls_used, tokens_used, live(shared_slots), shared_calls_left, shared_tokens_left,
  b.state, b.state == breaker.OPEN and b.open_until - now or 0,
  tonumber(match(fields[4] or '', '^(%d+) %-?%d+ [01]$') or 0), count(5), count(6), count(7), count(8),
  rt_ran, rt_ms, bg_ran, bg_ms, bulk_ran, bulk_ms, unpack(facts)
}
