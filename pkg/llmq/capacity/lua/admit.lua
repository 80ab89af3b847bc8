#!lua
-- admit.lua: may this call start now? Everything it needs is taken, or nothing is and the answer says what
-- was missing, when to ask again and how long an rt call that came anew would have to wait.
-- KEYS[1] llmq:<env>:cap:{cap}:epoch  string  when admissions begin, in ms; none: the store was wiped
-- KEYS[2] llmq:<env>:cap:{cap}:<alias>@<target>:state    hash  the law's fields, ok, rpm, tpm, breaker, waits, calls by other endings
-- KEYS[3] llmq:<env>:cap:{cap}:<alias>@<target>:rt       zset  call id -> lease end in ms
-- KEYS[4] llmq:<env>:cap:{cap}:<alias>@<target>:bg       zset  the same
-- KEYS[5] llmq:<env>:cap:{cap}:<alias>@<target>:bulk     zset  the same
-- KEYS[6] llmq:<env>:cap:{cap}:<alias>@<target>:waiting  zset  call id of a waiting rt call -> deadline in ms
-- KEYS[7] llmq:<env>:cap:{cap}:@<provider>:slots         zset  call id -> lease end in ms, over all its targets
-- KEYS[8] llmq:<env>:cap:{cap}:@<provider>:state         hash  rpm, tpm
-- KEYS[9] llmq:<env>:cap:{cap}:heard  string  see attend.lua
-- A lease ends half a ms later where it was prolonged: it does not tell any more when its admission was.
-- State: ok is how many calls ended well, what they cost beyond what they reserved, in tokens, since the law
-- last heard of any, and 1 while it has not; waits is the latest deadline of a waiting rt call.
-- What is none of ours in a field is as if it were missing: a script that failed would stop the target.
-- ARGV[1] now_ms    integer, "" = server TIME
-- ARGV[2] call_id   string, unique to this admission; a repeat renews what it has
-- ARGV[3] lane      string: rt, bg, bulk
-- ARGV[4] lease_ms  integer > 0
-- ARGV[5] tokens    integer, what it reserves
-- ARGV[6] until_ms  integer, until when an rt call that is refused counts as waiting; 0 not at all
-- ARGV[7] direct    integer, 1: admitted only beyond the rt calls that wait
-- ARGV[8] law       string, see LawConfig
-- ARGV[9] caps      string: of the target, of this lane, of the provider; 0 is none
-- ARGV[10] rpm      string: the target's budget of calls, see rates.lua; "" is none
-- ARGV[11] tpm      string: of tokens
-- ARGV[12] shared_rpm  string: the provider's
-- ARGV[13] shared_tpm  string: of tokens
-- Returns {missing, retry_ms, in_use, limit, stamp, at, place, wait_ms}; at 0: nobody knows any more;
-- missing 0 granted, 1 to 5 as the law says, 6 lane cap, 7 provider's cap, 8 calls and 9 tokens per minute, 10 and 11
-- the provider's, 12 breaker, 13 nothing is admitted after a wipe.
-- include law.lua
local function rates_of() -- a chunk costs time when it is set up, so what is seldom needed is so when it is
-- include rates.lua
  return rates
end
local function breaker_of()
-- include breaker.lua
  return breaker
end
local epoch, state, waiting, shared_slots, provider, heard = KEYS[1], KEYS[2], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local lanes = { rt = KEYS[3], bg = KEYS[4], bulk = KEYS[5] }
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + floor(t[2] / 1000)
end
local id, lane, lease_end, now_text = ARGV[2], ARGV[3], format('%d', now + ARGV[4]), format('%d', now)
local tokens, until_ms, direct = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local rt, own = lane == 'rt', lanes[lane]
local cap, lane_cap, shared_cap = match(ARGV[9], '(%d+) (%d+) (%d+)')
cap, lane_cap, shared_cap = tonumber(cap), tonumber(lane_cap), tonumber(shared_cap)

local LANE, SHARED, RPM, TPM, SHARED_RPM, SHARED_TPM, BREAKER, EPOCH = 6, 7, 8, 9, 10, 11, 12, 13
-- include epoch.lua
local FAR_MS = 1e14 -- beyond it no time is exact: the law's numbers are below
local AT_ONCE = 64 -- leases that one call clears away
local RETRY_MS, RETRY_MAX_MS, RETRY_RT_MS, RETRY_RT_MAX_MS = 100, 15000, 50, 1000 -- the rate is a guess: who waits live looks in
local FEW, WAIT_MAX_MS = 4, 60000 -- fewer starts of a window tell no rate; a guess is a minute at most
local PROBE_RETRY_MS, TURN_RETRY_MS = 1000, 300

local fields = redis.call('HMGET', state, law.FIELDS[1], 'ok', 'rpm', 'tpm', 'breaker', 'waits')
local ok, breaker_text, waits = fields[2], fields[5], tonumber(fields[6] or nil) or 0
function law.fetch(field) return redis.call('HGET', state, field) end -- of the others most calls need none
local flow = fields[1] and match(fields[1], '^%d %d+ %d+ %d+ .*') or nil -- phase and limits
local budgeted = ARGV[10] ~= '' or ARGV[11] ~= '' or ARGV[12] ~= '' or ARGV[13] ~= ''
local opens = 0
if not flow or budgeted or cap > 0 or lane_cap > 0 or shared_cap > 0 then -- else a state that lives tells enough: nothing is promised
  opens = opens_at(epoch, heard, now)
  if now < opens then return { EPOCH, opens - now, 0, 0, 0, now, 0, opens - now } end
end
local sound, s = pcall(law.load, now, ARGV[8], { flow })
if not sound then s = law.load(now, ARGV[8], {}) end
-- lawful asks something of the law. A state that it can't work with begins anew.
local function lawful(asked, ...)
  local at = rawget(s, 'clock_at')
  if at and at > 0 and at < FAR_MS then
    local fine, a, b = pcall(asked, s, ...)
    if fine then return a, b end
  end
  s = law.load(now, ARGV[8], {})
  return asked(s, ...)
end

-- live clears lapsed leases away and counts the others. One that is left over still counts.
local lapsed = 0
local function live(key)
  local n = redis.call('ZCARD', key)
  if n == 0 then return 0 end
  if redis.call('ZCOUNT', key, '-inf', now_text) == 0 then return n end -- costs half as much
  local gone = redis.call('ZRANGEBYSCORE', key, '-inf', now_text, 'LIMIT', 0, AT_ONCE)
  redis.call('ZREM', key, unpack(gone))
  lapsed = lapsed + #gone
  return n - #gone
end
local rt_in_use, bg_in_use, bulk_in_use = live(lanes.rt), live(lanes.bg), live(lanes.bulk)
local in_use, lapsed_here = rt_in_use + bg_in_use + bulk_in_use, lapsed
local well, owed = match(ok or '', '^(%d+) (%-?%d+) 1$')
if well then lawful(law.ended, now, now, 0, 'ok', tonumber(owed), 0, in_use) end

-- What is missing. The law is asked last, and only when all else is there: it learns from what it held
-- back itself.
local missing, retry, ahead = 0, 0, 0
local counted, pace -- of the budget that is missing: retry is for so many such calls, and each more takes it so many ms
local breaker, b
if breaker_text then
  breaker = breaker_of()
  b = breaker.load(now, breaker_text)
  local probe = b.state == breaker.HALF_OPEN and breaker.probing(b)
  if b.state == breaker.OPEN then
    missing, retry = BREAKER, b.open_until - now
  elseif probe then
    local function holds(key) return redis.call('ZSCORE', key, probe) end
    if holds(lanes.rt) or holds(lanes.bg) or holds(lanes.bulk) then missing, retry = BREAKER, PROBE_RETRY_MS end
  end
end
-- A direct call, and once an rt call that comes new, leave what is free to the rt calls that wait: who has
-- just returned a slot would else take it again.
if waits > now and (direct or until_ms > now and not redis.call('ZSCORE', waiting, id)) then
  ahead = redis.call('ZCOUNT', waiting, '(' .. now_text, '+inf')
end
local lane_in_use = rt and rt_in_use or lane == 'bg' and bg_in_use or bulk_in_use
if missing == 0 and lane_cap > 0 and lane_in_use + ahead >= lane_cap then missing = LANE end
if missing == 0 and shared_cap > 0 and live(shared_slots) + ahead >= shared_cap then missing = SHARED end

-- What is drawn of a budget is written only when all is there.
local rpm, tpm, shared_rpm, shared_tpm
if missing == 0 and budgeted then
  local rates = rates_of()
  local function draw(code, config, text, need, cost)
    if config == '' or cost == 0 and rates.known(text) then return end -- the first begins the budget, as it may owe in the end
    local wait, drawn = rates.draw(now, config, rates.from(config, text, opens), not rt, need, cost)
    if wait > retry then missing, retry, counted, pace = code, wait, need / cost, cost * 60000 / match(config, '%d+') end
    return drawn
  end
  rpm, tpm = draw(RPM, ARGV[10], fields[3], 1 + ahead, 1), draw(TPM, ARGV[11], fields[4], tokens, tokens)
  if ARGV[12] ~= '' or ARGV[13] ~= '' then
    local shared = redis.call('HMGET', provider, 'rpm', 'tpm')
    shared_rpm, shared_tpm = draw(SHARED_RPM, ARGV[12], shared[1], 1 + ahead, 1), draw(SHARED_TPM, ARGV[13], shared[2], tokens, tokens)
  end
end
if missing == 0 then
  missing, retry = lawful(law.gate, now, rt, tokens, in_use + ahead, bg_in_use + bulk_in_use)
  if missing == law.TURN then retry = max(retry, TURN_RETRY_MS) end
  if missing == 0 and cap > 0 and in_use + ahead >= cap then missing = law.SLOTS end -- whatever the law says
end

-- A repeat, whose first answer was lost, has all that it needs.
local again
if missing > 0 then
  again = redis.call('ZSCORE', own, id)
else
  again = redis.call('ZADD', own, 'NX', lease_end, id) == 0
end
local place, wait, stamp, admitted_at, changed = 0, 0, 0, now
if again then
  local held_until = tonumber(redis.call('ZSCORE', own, id))
  admitted_at = held_until == floor(held_until) and held_until - ARGV[4] or 0
  lease_end = lease_end .. '.5'
  redis.call('ZADD', own, lease_end, id)
  if shared_cap > 0 then redis.call('ZADD', shared_slots, lease_end, id) end
  changed = lawful(law.dump)
  missing, retry, stamp = 0, 0, s.clock_at
elseif missing > 0 then
  local crowd = ahead + 1 -- who comes anew stands behind all that wait
  if rt and missing ~= BREAKER and until_ms > now then
    crowd = live(waiting) + redis.call('ZADD', waiting, ARGV[6], id)
    place = redis.call('ZRANK', waiting, id) + 1
  end
  wait = retry
  if missing ~= BREAKER then -- when as many have started as are ahead of it
    local turn, sure = lawful(function(law_state)
      local started = max(law_state.previous_starts, law_state.window_starts)
      if law_state.starts.limit > 0 then return 60000000 / law_state.starts.limit, true end
      return started > 0 and law_state.config.window_ms / started or RETRY_MS, started >= FEW
    end)
    local least, most = RETRY_MS, RETRY_MAX_MS
    if rt then
      least, most = RETRY_RT_MS, RETRY_RT_MAX_MS
      local due = pace and retry + (crowd - counted) * pace or crowd * (sure and turn or lawful(law.turn, now))
      wait = max(wait, min(WAIT_MAX_MS, math.ceil(due)))
    end
    retry = max(least, min(most, math.ceil(max(1, place) * turn)), retry)
    wait = max(wait, retry)
  end
  changed = lawful(law.dump)
  if place > 0 and until_ms > waits then changed[#changed + 1], changed[#changed + 2] = 'waits', ARGV[6] end
else
  in_use = in_use + 1
  if shared_cap > 0 then redis.call('ZADD', shared_slots, lease_end, id) end
  if rt and waits > now then redis.call('ZREM', waiting, id) end
  stamp = lawful(law.started, rt, tokens, in_use)
  changed = lawful(law.dump)
  if rpm then changed[#changed + 1], changed[#changed + 2] = 'rpm', rpm end
  if tpm then changed[#changed + 1], changed[#changed + 2] = 'tpm', tpm end
  if shared_rpm and shared_tpm then
    redis.call('HSET', provider, 'rpm', shared_rpm, 'tpm', shared_tpm)
  elseif shared_rpm or shared_tpm then
    redis.call('HSET', provider, shared_rpm and 'rpm' or 'tpm', shared_rpm or shared_tpm)
  end
  if b and b.state == breaker.HALF_OPEN then
    breaker.probe_with(b, id)
    changed[#changed + 1], changed[#changed + 2] = 'breaker', breaker.text(b)
  end
end
if well then changed[#changed + 1], changed[#changed + 2] = 'ok', well .. ' 0 0' end
if #changed > 0 then redis.call('HSET', state, unpack(changed)) end
if lapsed_here > 0 and type(redis.pcall('HINCRBY', state, 'lapsed', lapsed_here)) == 'table' then -- none of ours
  redis.call('HSET', state, 'lapsed', lapsed_here)
end
local limit = max(1, floor(s.slots.limit / 1000))
return { missing, retry, in_use, cap > 0 and min(limit, cap) or limit, stamp, admitted_at, place, wait }
