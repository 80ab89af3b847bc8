#!lua
-- admit.lua: may this call start now? Everything it needs is taken, or nothing is and the answer says what
-- was missing and when to ask again.
-- KEYS[1] llmq:<env>:cap:{cap}:epoch  string  when admissions begin, in ms; none: the store was wiped
-- KEYS[2] llmq:<env>:cap:{cap}:<alias>@<target>:state    hash  the law's fields, rate, breaker, calls by ending
-- KEYS[3] llmq:<env>:cap:{cap}:<alias>@<target>:rt       zset  call id -> lease end in ms
-- KEYS[4] llmq:<env>:cap:{cap}:<alias>@<target>:bg       zset  the same
-- KEYS[5] llmq:<env>:cap:{cap}:<alias>@<target>:bulk     zset  the same
-- KEYS[6] llmq:<env>:cap:{cap}:<alias>@<target>:waiting  zset  call id of a waiting rt call -> deadline in ms
-- KEYS[7] llmq:<env>:cap:{cap}:@<provider>:slots         zset  call id -> lease end in ms, over all its targets
-- KEYS[8] llmq:<env>:cap:{cap}:@<provider>:state         hash  rate
-- ARGV[1] now_ms    integer, "" = server TIME
-- ARGV[2] call_id   string, unique to this admission; a repeat renews what it has
-- ARGV[3] lane      string: rt, bg, bulk
-- ARGV[4] lease_ms  integer > 0
-- ARGV[5] tokens    integer, what it reserves
-- ARGV[6] until_ms  integer, until when an rt call that is refused counts as waiting; 0 not at all
-- ARGV[7] direct    integer, 1: admitted only beyond the rt calls that wait
-- ARGV[8] law       string, see LawConfig
-- ARGV[9] caps      string: of the target, of this lane, of the provider; 0 is none
-- ARGV[10] budgets  string: of the target, see rates.lua; "" is none
-- ARGV[11] shared   string: budgets of the provider
-- Returns {missing, retry_ms, in_use, limit, stamp, at, place}; missing 0 granted, 1 to 5 as the law says,
-- 6 lane cap, 7 provider's cap, 8 calls and 9 tokens per minute, 10 and 11 the provider's, 12 breaker,
-- 13 nothing is admitted after a wipe.
-- include law.lua
-- include rates.lua
-- include breaker.lua
local epoch, state, waiting, shared_slots, provider = KEYS[1], KEYS[2], KEYS[6], KEYS[7], KEYS[8]
local lanes = { rt = KEYS[3], bg = KEYS[4], bulk = KEYS[5] }
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local id, lane, lease_end = ARGV[2], ARGV[3], string.format('%.0f', now + ARGV[4])
local tokens, until_ms, direct = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local rt, own = lane == 'rt', lanes[lane]
local cap, lane_cap, shared_cap = string.match(ARGV[9], '(%d+) (%d+) (%d+)')
cap, lane_cap, shared_cap = tonumber(cap), tonumber(lane_cap), tonumber(shared_cap)

local LANE, SHARED, BUDGET, SHARED_BUDGET, BREAKER, EPOCH = 6, 7, 7, 9, 12, 13 -- a budget's two come after it
local QUARANTINE_MS = 15000 -- live workers renew every 10 s: by then every call in flight is known again
local AT_ONCE = 64 -- leases that one call clears away
local RETRY_MS, RETRY_RT_MS, RETRY_MAX_MS, PROBE_RETRY_MS, TURN_RETRY_MS = 100, 50, 15000, 1000, 300

local opens = tonumber(redis.call('GET', epoch) or nil)
if not opens or opens - now > QUARANTINE_MS then -- the second: a clock that stepped back
  opens = now + QUARANTINE_MS
  redis.call('SET', epoch, string.format('%.0f', opens))
end
if now < opens then return { EPOCH, opens - now, 0, 0, 0, now, 0 } end

local now_text, lapsed = string.format('%.0f', now), 0

-- live clears lapsed leases away and counts the others. A lease that one call leaves over still counts.
local function live(key)
  local n = redis.call('ZCARD', key)
  if n == 0 then return 0, 0 end
  local gone = redis.call('ZRANGEBYSCORE', key, '-inf', now_text, 'LIMIT', 0, AT_ONCE)
  if #gone > 0 then redis.call('ZREM', key, unpack(gone)) end
  return n - #gone, #gone
end

local holding, in_use = {}, 0
for name, key in pairs(lanes) do
  local n, gone = live(key)
  holding[name], in_use, lapsed = n, in_use + n, lapsed + gone
end
local fields = redis.call('HMGET', state, 'rate', 'breaker', unpack(law.FIELDS))
local rate_text, breaker_text = fields[1], fields[2]
local s = law.load(now, ARGV[8], { unpack(fields, 3) })
local shared_rate_text = ARGV[11] ~= '' and redis.call('HGET', provider, 'rate')

local function limit()
  local n = math.max(1, math.floor(s.slots.limit / 1000))
  return cap > 0 and math.min(n, cap) or n
end

if redis.call('ZSCORE', own, id) then -- its answer was lost
  redis.call('ZADD', own, lease_end, id)
  if shared_cap > 0 then redis.call('ZADD', shared_slots, lease_end, id) end
  return { 0, 0, in_use, limit(), s.clock_at, now, 0 }
end

-- What is missing. The law is asked last, and only when all else is there: it takes a refusal of its own
-- for a call that it held back.
local missing, retry, ahead = 0, 0, 0
local b = breaker.load(now, breaker_text or nil)
if b.state == breaker.OPEN then
  missing, retry = BREAKER, b.open_until - now
elseif b.state == breaker.HALF_OPEN then
  local probe = breaker.probing(b)
  for _, key in pairs(lanes) do
    if probe and redis.call('ZSCORE', key, probe) then missing, retry = BREAKER, PROBE_RETRY_MS end
  end
end
if direct then ahead = redis.call('ZCOUNT', waiting, '(' .. now_text, '+inf') end
if missing == 0 and lane_cap > 0 and holding[lane] + ahead >= lane_cap then missing = LANE end
if missing == 0 and shared_cap > 0 and live(shared_slots) + ahead >= shared_cap then missing = SHARED end

local empty_at = opens - QUARANTINE_MS
local budgets = rates.load(now, ARGV[10], rate_text or nil, empty_at)
local shared_budgets = rates.load(now, ARGV[11], shared_rate_text or nil, empty_at)
if missing == 0 and budgets then
  local which, wait = rates.wait(budgets, not rt, 1 + ahead, tokens)
  if which > 0 then missing, retry = BUDGET + which, wait end
end
if (missing == 0 or missing > BUDGET and missing <= SHARED_BUDGET) and shared_budgets then -- the longer of both waits
  local which, wait = rates.wait(shared_budgets, not rt, 1 + ahead, tokens)
  if which > 0 and wait > retry then missing, retry = SHARED_BUDGET + which, wait end
end
if missing == 0 then
  missing, retry = law.gate(s, now, rt, tokens, in_use + ahead, in_use - holding.rt)
  if missing == law.TURN then retry = TURN_RETRY_MS end
  if missing == 0 and cap > 0 and in_use + ahead >= cap then missing = law.SLOTS end -- whatever the law says
end
local place = 0
if missing > 0 then
  -- How long until as many have started as are ahead of it.
  if rt and missing ~= BREAKER and until_ms > now then
    live(waiting)
    redis.call('ZADD', waiting, ARGV[6], id)
    place = redis.call('ZRANK', waiting, id) + 1
  end
  if missing ~= BREAKER then
    local started, window = math.max(s.previous_starts, s.window_starts), s.config.window_ms
    local turn = RETRY_MS
    if s.starts.limit > 0 then
      turn = 60000000 / s.starts.limit
    elseif started > 0 then
      turn = window / started
    end
    retry = math.max(rt and RETRY_RT_MS or RETRY_MS, math.min(RETRY_MAX_MS, math.ceil(math.max(1, place) * turn)), retry)
  end
else
  in_use = in_use + 1
  redis.call('ZADD', own, lease_end, id)
  if shared_cap > 0 then redis.call('ZADD', shared_slots, lease_end, id) end
  if rt then redis.call('ZREM', waiting, id) end
end
local stamp = 0
if missing == 0 then stamp = law.started(s, rt, tokens, in_use) end
local changed = law.dump(s)
if missing == 0 then
  if budgets then
    rates.take(budgets, not rt, 1, tokens)
    changed[#changed + 1], changed[#changed + 2] = 'rate', rates.text(budgets)
  end
  if shared_budgets then
    rates.take(shared_budgets, not rt, 1, tokens)
    redis.call('HSET', provider, 'rate', rates.text(shared_budgets))
  end
  if b.state == breaker.HALF_OPEN then
    breaker.probe_with(b, id)
    changed[#changed + 1], changed[#changed + 2] = 'breaker', breaker.text(b)
  end
end
if #changed > 0 then redis.call('HSET', state, unpack(changed)) end
if lapsed > 0 then redis.call('HINCRBY', state, 'lapsed', lapsed) end
return { missing, retry, in_use, limit(), stamp, now, place }
