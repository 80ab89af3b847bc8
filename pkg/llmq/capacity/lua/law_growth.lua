-- law_growth.lua: what held calls back grows, once a window. A part of law.lua's function make. luacheck: ignore

local REST_STARTS = 150 --         a known ceiling is not probed before so many starts, or 2 REST_MAX_MS: one throttle of 150 is cheap
local UNTOUCHED = 4 --             a ceiling never touched grows by a fourth a window
local BEYOND_SLOTS = 1040 --       per mille of the reference: slots taken above it without a throttle, it gave way
local BEYOND_RATE = 101 --         per cent of the reference taken for long: a rate gave way
local BY_MINUTE_PROOF_MS = 130000 -- a quota by the minute that gave way shows it after two of them
local FOLLOW = 800 --              per mille of what was just taken that a reference follows at least: a burst may be in it
local STOCK = 60 --                a bucket may hold a 60th of a minute that a sample doesn't know of
local PROBE_TOP, PROBE_TOP_BY_MINUTE = 1100, 1020 -- per mille: careful steps end there, for buckets; for minutes, where all above is refused
local PROBE_STEP = 100 --          a careful step is a 100th of the reference, or
local PROBE_SLOT = 500 --          half a slot, in thousandths
local BACK_LEAST = 5 --            per mille: the least step back to what is known
-- Growth per window, per mille, doubled each time: where a known ceiling gave way, and where it is but a suspect.
local GROW_LEAST, GROW_MOST, SUSPECT_LEAST, SUSPECT_MOST = 20, 100, 50, 250
local HALF_SPENT = 45000 --        a pacer with so much of 60000 of its burst saved up holds nobody back
local STALE_MS, FORGET_MS = 60000, 600000 -- unused for so long: samples begin anew; nothing is known for sure
local WRAP = 1e12 --               counters begin anew there: a number holds 9e15 exactly, in products as well
local DENIED_PART = 3 --           a ceiling that refused less than a third of what was refused stays as it is
local FAILED_PART = 4 --           nothing grows while more than a fourth of the starts fail
local NOISE_STARTS, MARK_STARTS = 100, 400 -- evidence of less noise needs so many starts; older evidence is halved at so many
local BY_MINUTE_MS = 180000 --     three minutes without a sign of it: it does not count by the minute

local function new_window(s, now, in_use)
  s.previous_starts = s.window_starts
  s.window_at, s.window_starts, s.window_throttles, s.window_peak, s.window_failed = now, 0, 0, in_use, 0
  s.slots.denied, s.starts.denied, s.tokens.denied = 0, 0, 0
end

-- mark lets evidence begin anew: throttles of calls that started before are old news.
local function mark(s, now, in_use)
  s.mark_at, s.mark_starts, s.mark_throttles, s.mark_in_use, s.probing = now, 0, 0, 0, 0
  s.testing = s.slots.reference == 0 and 1 or 0
  local starts = max(s.window_starts, floor(s.previous_starts / 2), 4)
  new_window(s, now, in_use)
  s.previous_starts = starts
end

-- proven tells whether more was taken than the reference could have refilled, and how much.
local function proven(s, c, now)
  local rate
  if s.by_minute == 1 then
    if now - c.rest_until <= BY_MINUTE_PROOF_MS then return false, c.reference end
    local taken, elapsed = last_minute(s, c, now)
    rate = floor(taken * MINUTE / elapsed)
  else
    local stock = floor(c.reference / STOCK)
    if c.sample_stocked == 1 then stock = stock + c.reference end -- it may have begun with a minute in stock
    rate = floor((c.taken - c.sample_from - stock) * MINUTE / max(1000, now - c.sample_at))
  end
  return rate > floor(c.reference * BEYOND_RATE / 100), rate
end

local function grow(c, by)
  c.limit = c.limit + floor(by)
  if c.cap > 0 then c.limit = min(c.limit, c.cap) end
end

-- raise lets a ceiling grow that held calls back, once a window. True: it is a careful step above a known
-- ceiling, a probe, which one throttle ends.
local function raise(s, c, now)
  local slots, limit, reference = c.index == 1, c.limit, c.reference
  if not slots and c.level > max(floor(limit * BURST / 1000), 2000) * HALF_SPENT then return false end -- its pacer has saved up
  if c.cap > 0 and limit >= c.cap then -- nothing to test above what was configured
    if slots then s.testing = 0 end
    return false
  end
  local tried = not slots or s.testing == 1 and s.window_peak * 1000 >= limit - 1000
  if reference == 0 then -- never touched
    s.testing = 1
    if tried then grow(c, limit / UNTOUCHED) end
    return false
  end
  local part = floor(limit * 1000 / reference)
  local beyond, rate = c.growth > 0 and (slots or s.by_minute == 0), reference
  if not beyond and slots then
    beyond = part >= BEYOND_SLOTS
  elseif not beyond and part > 1000 and known(c) then
    beyond, rate = proven(s, c, now)
  end
  if not beyond and part < HOLD[c.index] then -- back to what is known
    grow(c, limit * max(BACK_LEAST, HOLD[c.index] - part) / 1000)
    if slots then s.testing = 0 end
    return false
  end
  if not beyond and (now < c.rest_until or known(c) and s.mark_starts < REST_STARTS and now - s.mark_at < 2 * REST_MAX_MS) then
    if slots then s.testing = 0 end
    return false
  end
  if slots and s.testing == 0 then -- background may use all slots while the ceiling is tested
    s.testing, c.limit = 1, max(limit, reference)
    return true
  end
  if not tried then return not beyond end
  local suspect = not slots and not known(c)
  if beyond or suspect then
    c.growth = suspect and min(SUSPECT_MOST, max(SUSPECT_LEAST, 2 * c.growth))
      or min(GROW_MOST, max(GROW_LEAST, 2 * c.growth))
    c.agreed = min(c.agreed, 1)
    if slots then
      c.reference = limit -- taken without a throttle
    elseif beyond then
      if known(c) then rate = max(rate, floor(recently(s, c, now) * FOLLOW / 1000)) end
      c.reference = max(reference, min(limit, rate))
    end
    grow(c, limit * c.growth / 1000)
    if c.limit > 2 * reference and not beyond then c.limit, c.agreed, c.growth = 0, 0, 0 end -- it was not this one
    return false
  end
  if slots then
    grow(c, max(reference / PROBE_STEP, PROBE_SLOT))
  elseif part < (s.by_minute == 1 and PROBE_TOP_BY_MINUTE or PROBE_TOP) then
    grow(c, reference / PROBE_STEP)
  end
  return known(c)
end

-- rested looks at a target that nobody used: a quota may have changed meanwhile, and its buckets are full.
local function rested(s, now, idle)
  for i = 1, 3 do
    local c = s[i]
    if i > 1 then c.sample_at, c.sample_from, c.sample_stocked = now, c.taken, 1 end
    if idle >= FORGET_MS then c.deviation, c.agreed, c.growth, c.rest_until = UNKNOWN, 0, 0, now end
  end
  s.touched_starts = s.starts.taken
  if idle >= FORGET_MS then s.noise, s.by_minute = 0, 0 end
end

-- wrap keeps a counter within what a number holds exactly; only differences of it count.
local function wrap(s, c)
  if c.taken < WRAP then return end
  c.taken, c.sample_from = c.taken - WRAP, c.sample_from - WRAP
  for k = 1, 12 do s[c.ring][k] = s[c.ring][k] - WRAP end
  if c.index == 2 then
    s.touched_starts, s.check.taken, s.wall.taken = s.touched_starts - WRAP, s.check.taken - WRAP, s.wall.taken - WRAP
  end
end

-- turn_rings keeps what had been taken when each 5 s of the last minute began.
local function turn_rings(s, slot)
  for k = max(s.ring_slot + 1, slot - 11), slot do
    s.starts_ring[k % 12 + 1], s.tokens_ring[k % 12 + 1] = s.starts.taken, s.tokens.taken
  end
  s.ring_slot = slot
  wrap(s, s.starts)
  wrap(s, s.tokens)
end

-- close_window lets grow what held calls back, and begins the next window.
local function close_window(s, now, in_use)
  local elapsed = now - s.window_at
  if elapsed >= STALE_MS then rested(s, now, elapsed) end
  local denied = s.slots.denied + s.starts.denied + s.tokens.denied
  local answers = s.unanswered * 1000 < max(s.slots.limit, 4000) -- nothing grows on calls that hang or fail
  s.probing = 0
  for i = 1, 3 do
    local c = s[i]
    c.held_back = denied > 0 and c.denied * DENIED_PART >= denied and 1 or 0
    if c.cap > 0 then c.limit = min(c.limit, c.cap) end -- learned before it was configured
    if answers and s.mode == RUN and c.limit > 0 and s.window_failed * FAILED_PART <= s.window_starts then
      if c.held_back == 1 then
        if raise(s, c, now) then s.probing = 1 end
      elseif i == 1 and c.reference > 0 then
        s.testing = 0
      end
    end
  end
  if s.mark_starts >= NOISE_STARTS and s.noise > 0 and s.mark_throttles * 20000 < s.mark_starts * s.noise then s.noise = 0 end
  if s.mark_starts >= MARK_STARTS then
    s.mark_starts, s.mark_throttles, s.mark_in_use = floor(s.mark_starts / 2), floor(s.mark_throttles / 2), floor(s.mark_in_use / 2)
  end
  if now - max(s.wall.at, s.by_minute_at) > BY_MINUTE_MS then s.by_minute = 0 end
  new_window(s, now, in_use)
end
