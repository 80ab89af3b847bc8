-- law.lua: the learned limit of one target. A chunk that scripts are built from (put in front of
-- them at a marked line) and that the simulator in local/bench/limiter runs as it stands.
--
-- Three ceilings are learned side by side: slots (calls at once), starts (calls per minute) and
-- tokens (per minute). Feedback comes at the end of calls. Nothing here calls the server: a script
-- reads the fields of a hash, asks the law, and writes back the fields that changed.
--
--   local s = law.load(now, config_text, HMGET state <law.FIELDS>)
--   local why, wait = law.gate(s, now, is_rt, tokens, in_use, background)       may it start?
--   local stamp = law.started(s, is_rt, tokens, in_use)                         it does: keep stamp in its lease
--   law.ended(s, now, stamp, tokens, outcome, tokens_used, retry_after, in_use) it has ended
--   HSET state <law.dump(s)>
--
-- Units: times are whole ms; slots and starts are thousandths, tokens are tokens; a pacer's level is
-- a thousandth of a start (or a token) times 60000, so that a rate per minute times ms adds to it.
-- Ratios are per mille, those of throttles per 10000. All numbers are integers below 1e14.
--
-- Words: a touch is a moment at which the provider refused more than noise explains. A sample is what
-- was taken between two touches: a quota's bucket was empty at both ends, so that is what it was
-- refilled with, or less, never more. A ceiling is known while its samples agree, else a suspect.

local law = {} -- luacheck: ignore 241
local floor, max, min, tonumber, match, format = math.floor, math.max, math.min, tonumber, string.match, string.format

-- What gate answers: 0 it may start, else what holds it back.
law.SLOTS, law.STARTS, law.TOKENS, law.CLOSED, law.TURN = 1, 2, 3, 4, 5

-- Phases: nothing special; after a cut, did it help?; everything held well below what was taken, does
-- that help?; a wall, nothing starts; after a wall, a few may try.
local RUN, CHECK, DEEP_CHECK, CLOSED, HALF_OPEN = 0, 1, 2, 3, 4

local MINUTE, RING_MS = 60000, 5000
local BURST = 15 --        what a pacer saves up, per mille of a minute
local RT_FIRST_MS = 300 -- background steps aside for an rt call that asked so lately
local RT_IN_A_ROW = 20 --  after so many it is the background's turn:
local TURN_MS = 1000 --    rt leaves one start to it, so long beyond the time it was told to wait
local TURN_MAX_MS = 5000
local CHECK_SKIP_MS, CHECK_MAX_MS, CHECK_STARTS = 500, 15000, 10
local HALF_STEP_MS, HALF_MS = 400, 2400

-- The fields of the hash, each a list of integers. Every call reads and writes flow; another is parsed when one of its
-- numbers is first used, and written when one changed. (A field per number costs ten times as much: ADR 15.)
law.FIELDS = { 'flow', 'evidence', 'slots', 'starts', 'tokens', 'check', 'wall', 'starts_ring', 'tokens_ring' }

local FLOW = '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) '
  .. '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)'
local FLOW_FORMAT = '%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f '
  .. '%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f'

-- in_force is the cap that holds now; 0 is none.
local function in_force(s, c)
  local limit = c.limit
  if s.mode == CHECK or s.mode == DEEP_CHECK then
    limit = floor(limit * s.check.keep / 1000)
    local below = c.index == 1 and s.check.slots_below or c.index == 2 and s.check.starts_below or 0
    if below > 0 and (limit == 0 or below < limit) then limit = below end
  end
  if c.cap > 0 and (limit == 0 or limit > c.cap) then return c.cap end
  return limit
end

-- ---- what is seldom needed ----

-- What a script seldom needs is made when it does: a script runs its whole text with every call, and each of some forty
-- functions costs it a microsecond.
local function make()
  -- By ceiling: slots, starts, tokens. HOLD is where a known one is held, per mille of its reference; NEAR
  -- how far off a sample may lie and still agree; STEADY the deviation up to which it is known.
  local HOLD, NEAR, STEADY, UNKNOWN = { 970, 985, 985 }, { 25, 50, 60 }, { 30, 60, 80 }, 120
  local SAMPLE_MS, SAMPLE_STARTS, SAMPLE_ENOUGH_MS = 5000, 20, 30000 -- what makes a rate's sample good
  local REST_MS, REST_MAX_MS, REST_STARTS = 1000, 20000, 150 -- between a touch and the next probe
  local CHAIN_MS = 15000 -- walls so close together have one cause
  local PAUSE_MAX_MS, RETRY_AFTER_MAX_MS = 5000, 20000
  local BY_MINUTE_MS, BY_MINUTE_PROOF_MS = 180000, 130000
  local STALE_MS, FORGET_MS = 60000, 600000 -- unused for so long: samples begin anew; nothing is known for sure
  local WRAP = 1e12 -- counters begin anew there
  -- Kinds of touch: throttles in a cluster; one throttle of a probe; a wall of them.
  local CLUSTER, PROBE, WALL = 1, 2, 3
  local sqrt, gmatch, concat = math.sqrt, string.gmatch, table.concat

  local RATE = 'reference deviation agreed growth rest_until held_back sample_at sample_from sample_stocked minute_at minute_total'
  local RING = '1 2 3 4 5 6 7 8 9 10 11 12'
  local NAMES = {
    evidence = 'first_at previous_starts window_throttles mark_at mark_throttles mark_in_use noise probing '
      .. 'by_minute by_minute_at touched_starts',
    slots = 'reference deviation agreed growth rest_until held_back',
    starts = RATE,
    tokens = RATE,
    check = 'at starts throttles enough taken keep ratio slots_below starts_below slots_limit starts_limit tokens_limit '
      .. 'slots_reference starts_reference tokens_reference slots_deviation starts_deviation tokens_deviation',
    wall = 'open_at again at in_use taken timed judged starts_minute tokens_minute starts_calendar tokens_calendar limit reference',
    starts_ring = RING,
    tokens_ring = RING,
  }

  -- parse reads the field of a table into it.
  local function parse(object)
    local keys, i = {}, 0
    for key in gmatch(NAMES[object.field], '%S+') do keys[#keys + 1] = tonumber(key) or key end
    for number in gmatch(object.text, '%S+') do
      i = i + 1
      object[keys[i]] = tonumber(number)
    end
  end

  -- text_of is a table's field.
  local function text_of(object)
    local numbers = {}
    for key in gmatch(NAMES[object.field], '%S+') do numbers[#numbers + 1] = format('%.0f', object[tonumber(key) or key]) end
    return concat(numbers, ' ')
  end

  -- settings are those that a call seldom needs.
  local function settings(s)
    local config = s.config
    if config.rest then
      local initial, min_throttles, loss_tolerance, pause_ratio, pause_ms = match(config.rest, '(%d+) (%d+) (%d+) (%d+) (%d+)')
      config.initial, config.min_throttles, config.loss_tolerance = initial * 1000, tonumber(min_throttles), tonumber(loss_tolerance)
      config.pause_ratio, config.pause_ms, config.rest = tonumber(pause_ratio), tonumber(pause_ms), nil
    end
    return config
  end

  -- The state of a target that nothing is known of. Configured quotas are taken as known until samples
  -- say otherwise; the cap on slots is no quota, so nothing is held below it.
  local function fresh(now, config)
    settings({ config = config })
    local function ceiling(index, field, limit, cap)
      local c = { index = index, cap = cap, field = field, ring = field .. '_ring', limit = limit, denied = 0, level = 0, taken = 0,
        reference = 0, deviation = UNKNOWN, agreed = 0, growth = 0, rest_until = 0, held_back = 0, sample_at = now, sample_from = 0,
        sample_stocked = 1, minute_at = 0, minute_total = 0 }
      if index > 1 and cap > 0 then
        c.reference, c.limit, c.deviation, c.agreed = cap, floor(cap * HOLD[index] / 1000), STEADY[index] / 2, 2
      end
      return c
    end
    local s = { field = 'evidence', mode = RUN, clock_at = now, clock_offset = 0, level_at = now, window_at = now, window_starts = 0,
      window_peak = 0, window_failed = 0, mark_starts = 0, rt_asked_at = 0, rt_in_a_row = 0, background_turn_until = 0, testing = 1,
      ring_slot = floor(now / RING_MS), unanswered = 0,
      first_at = now, previous_starts = 0, window_throttles = 0, mark_at = now, mark_throttles = 0, mark_in_use = 0, noise = 0,
      probing = 0, by_minute = 0, by_minute_at = 0, touched_starts = 0 }
    s.slots = ceiling(1, 'slots', min(config.initial, config.max_slots), config.max_slots)
    s.starts = ceiling(2, 'starts', 0, config.max_starts)
    s.tokens = ceiling(3, 'tokens', 0, config.max_tokens)
    for _, field in ipairs({ 'check', 'wall', 'starts_ring', 'tokens_ring' }) do
      s[field] = { field = field }
      for key in gmatch(NAMES[field], '%S+') do s[field][tonumber(key) or key] = 0 end
    end
    s[1], s[2], s[3] = s.slots, s.starts, s.tokens
    s.config, s.thawed = config, { s, s.slots, s.starts, s.tokens, s.check, s.wall, s.starts_ring, s.tokens_ring }
    return s
  end

  -- ---- counting ----

  -- explained is how many throttles among so many starts are noise: its share and twice the deviation.
  local function explained(s, starts)
    local thousandths = floor(s.noise * starts / 10)
    return floor((thousandths + 2 * floor(sqrt(thousandths * 1000))) / 1000)
  end

  -- A wall: most of what starts is refused.
  local function is_wall(s, throttles, starts)
    local noise, allowed = floor(s.noise * starts / 10000), explained(s, starts)
    local refused = (throttles - noise) * 1000
    return throttles >= 8 + allowed and refused >= settings(s).pause_ratio * (starts - noise)
      or throttles >= 4 + allowed and refused >= (settings(s).pause_ratio + 100) * (starts - noise)
  end

  -- What was taken in the last 55 to 60 s, and in how many ms.
  local function last_minute(s, c, now)
    local slot = s.ring_slot - 11
    if slot * RING_MS >= s.first_at then return c.taken - s[c.ring][slot % 12 + 1], now - slot * RING_MS end
    return c.taken, max(1000, now - s.first_at)
  end

  -- What was taken in this minute of the calendar.
  local function calendar_minute(s, c, now)
    local slot = floor(now / MINUTE) * 12
    if slot * RING_MS >= s.first_at then return c.taken - s[c.ring][slot % 12 + 1] end
    return c.taken
  end

  -- What was taken in the last 5 to 10 s, per minute.
  local function recently(s, c, now)
    local slot = s.ring_slot - 1
    if slot * RING_MS < s.first_at then return 0 end
    return floor((c.taken - s[c.ring][slot % 12 + 1]) * MINUTE / max(1000, now - slot * RING_MS))
  end

  -- measure gives the running sample of a rate, per minute, and whether it is long enough to count.
  local function measure(s, c, now)
    local elapsed, taken = now - c.sample_at, c.taken - c.sample_from
    if s.by_minute == 1 and elapsed < 50000 then return 0, false end
    if s.by_minute == 1 or elapsed > MINUTE then taken, elapsed = last_minute(s, c, now) end
    local enough = elapsed >= SAMPLE_MS and s.starts.taken - s.touched_starts >= SAMPLE_STARTS * 1000 or elapsed >= SAMPLE_ENOUGH_MS
    return floor(taken * MINUTE / max(500, elapsed)), enough and taken > 0
  end

  -- ---- what is known of a ceiling ----

  local function known(c) return c.reference > 0 and c.deviation <= STEADY[c.index] end

  local function distance(c, value) return max(value - c.reference, c.reference - value) end

  local function near(c, value)
    local off = distance(c, value)
    return c.reference > 0 and (off * 1000 <= c.reference * NEAR[c.index] or c.index == 1 and off <= 1000)
  end

  -- held is where a ceiling is held below its reference.
  local function held(c) return floor(c.reference * HOLD[c.index] / 1000) end

  -- learn takes a sample into the reference.
  local function learn(c, value)
    if value <= 0 then return end
    if c.reference == 0 then c.reference = value return end
    local off = distance(c, value)
    if c.index == 1 then off = max(0, off - 1000) end -- a slot more or less is the time feedback takes
    c.deviation = floor((c.deviation + min(200, floor(off * 1000 / c.reference))) / 2)
    if not near(c, value) then
      c.reference, c.agreed = value, 0
      return
    end
    c.agreed = min(3, c.agreed + 1)
    local weight = 3
    if c.index > 1 and c.limit > 0 and value <= c.reference then weight = 7 end -- a lower rate may be our own pacing
    c.reference = floor((weight * c.reference + value) / (weight + 1))
  end

  -- rest keeps a ceiling from being probed for a while, the longer the more samples agreed.
  local function rest(c, now)
    c.rest_until, c.growth = now + min(REST_MS * 3 ^ c.agreed, REST_MAX_MS), 0
  end

  -- ---- windows and growth ----

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
      local stock = floor(c.reference / 60)
      if c.sample_stocked == 1 then stock = stock + c.reference end -- it may have begun with a minute in stock
      rate = floor((c.taken - c.sample_from - stock) * MINUTE / max(1000, now - c.sample_at))
    end
    return rate > floor(c.reference * 101 / 100), rate
  end

  local function grow(c, by)
    c.limit = c.limit + floor(by)
    if c.cap > 0 then c.limit = min(c.limit, c.cap) end
  end

  -- raise lets a ceiling grow that held calls back, once a window. True: it is a careful step above a known
  -- ceiling, a probe, which one throttle ends.
  local function raise(s, c, now)
    local slots, limit, reference = c.index == 1, c.limit, c.reference
    if not slots and c.level > max(floor(limit * BURST / 1000), 2000) * 45000 then return false end -- its pacer has saved up
    if c.cap > 0 and limit >= c.cap then -- nothing to test above what was configured
      if slots then s.testing = 0 end
      return false
    end
    local tried = not slots or s.testing == 1 and s.window_peak * 1000 >= limit - 1000
    if reference == 0 then -- never touched
      s.testing = 1
      if tried then grow(c, limit / 4) end
      return false
    end
    local part = floor(limit * 1000 / reference)
    local beyond, rate = c.growth > 0 and (slots or s.by_minute == 0), reference
    if not beyond and slots then
      beyond = part >= 1040
    elseif not beyond and part > 1000 and known(c) then
      beyond, rate = proven(s, c, now)
    end
    if not beyond and part < HOLD[c.index] then -- back to what is known
      grow(c, limit * max(5, HOLD[c.index] - part) / 1000)
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
      c.growth = suspect and min(250, max(50, 2 * c.growth)) or min(100, max(20, 2 * c.growth))
      c.agreed = min(c.agreed, 1)
      if slots then
        c.reference = limit -- taken without a throttle
      elseif beyond then
        if known(c) then rate = max(rate, floor(recently(s, c, now) * 4 / 5)) end
        c.reference = max(reference, min(limit, rate))
      end
      grow(c, limit * c.growth / 1000)
      if c.limit > 2 * reference and not beyond then c.limit, c.agreed, c.growth = 0, 0, 0 end -- it was not this one
      return false
    end
    if slots then
      grow(c, max(reference / 100, 500))
    elseif part < (s.by_minute == 1 and 1020 or 1100) then
      grow(c, reference / 100)
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
      c.held_back = denied > 0 and c.denied * 3 >= denied and 1 or 0
      if c.cap > 0 then c.limit = min(c.limit, c.cap) end -- learned before it was configured
      if answers and s.mode == RUN and c.limit > 0 and s.window_failed * 4 <= s.window_starts then
        if c.held_back == 1 then
          if raise(s, c, now) then s.probing = 1 end
        elseif i == 1 and c.reference > 0 then
          s.testing = 0
        end
      end
    end
    if s.mark_starts >= 100 and s.noise > 0 and s.mark_throttles * 20000 < s.mark_starts * s.noise then s.noise = 0 end
    if s.mark_starts >= 400 then
      s.mark_starts, s.mark_throttles, s.mark_in_use = floor(s.mark_starts / 2), floor(s.mark_throttles / 2), floor(s.mark_in_use / 2)
    end
    if now - max(s.wall.at, s.by_minute_at) > BY_MINUTE_MS then s.by_minute = 0 end
    new_window(s, now, in_use)
  end

  -- ---- touches ----

  local function begin_check(s, now, mode, ratio)
    local check = s.check
    s.mode = mode
    check.at, check.starts, check.throttles, check.taken = now, 0, 0, s.starts.taken
    check.enough = min(300, max(20, floor(60000 / max(1, ratio))))
  end

  -- sample is what a touch says of a rate, given what was measured: per minute, and whether it may be trusted.
  local function sample(s, c, now, kind, value, good)
    if c.growth > 0 and known(c) then -- while it grows fast only the last seconds count
      local rate = recently(s, c, now)
      return max(rate, value), good or rate > value
    end
    if s.wall.at > 0 and now - s.wall.at < CHAIN_MS then return value, good and not known(c) end -- behind a wall little is taken
    if c.reference > 0 and (kind == WALL or good and known(c)) then -- it may count in windows: take what fits best
      local calendar = calendar_minute(s, c, now)
      if calendar > 0 and distance(c, calendar) < distance(c, value) then
        if not near(c, value) and near(c, calendar) then s.by_minute = 1 end
        value, good = calendar, true
      end
      local taken, elapsed = last_minute(s, c, now)
      local rate = floor(taken * MINUTE / max(55000, elapsed))
      if kind == WALL and rate > 0 and distance(c, rate) < distance(c, value) then value, good = rate, true end
    end
    return value, good
  end

  -- in_minutes tells whether a quota counts in minutes of the calendar: twice in a row hardly anything of the
  -- last minute was taken before this one of the calendar began, and the same in it.
  local function in_minutes(s, c, now)
    local total, at = calendar_minute(s, c, now), floor(now / MINUTE)
    if total <= 0 or total * 10 < last_minute(s, c, now) * 9 or now % MINUTE > 50000 then return false end
    local off = max(total - c.minute_total, c.minute_total - total)
    local same = c.minute_at < at and c.minute_at >= at - 2 and off * 1000 <= total * NEAR[c.index]
    if c.minute_at < at then c.minute_at, c.minute_total = at, total end
    return same
  end

  -- culprit is the known ceiling that explains a touch best, or nil.
  local function culprit(s, values, good)
    local guilty
    for i = 1, 3 do
      local c = s[i]
      if known(c) and (near(c, values[i]) or not good[i]) and (i == 1 or c.limit > 0 or c.deviation <= s.slots.deviation)
        and (not guilty or c.deviation < guilty.deviation) then
        guilty = c
      end
    end
    return guilty
  end

  -- cut takes a sample into one ceiling and lowers it as far as the evidence goes.
  local function cut(c, now, kind, ratio, guilty, value, good)
    local slots, limit = c.index == 1, c.limit
    local least = limit - floor(limit * min(5000, max(200, floor(ratio / 2))) / 10000) -- weak evidence cuts little
    if slots and not guilty and kind ~= WALL then value = max(value, least) end
    -- A known ceiling whose sample lies elsewhere is believed for a while.
    local doubted = known(c) and not near(c, value) and (kind ~= WALL or not slots) and good
    if doubted then
      c.deviation, c.agreed = floor((c.deviation * 3 + 2 * STEADY[c.index]) / 4), min(c.agreed, 1)
    elseif good then
      learn(c, value)
    end
    if guilty and guilty ~= c then
      if not slots then c.limit = 0 end -- a suspect no more
      return
    end
    if doubted then
      if limit > 0 then c.limit = min(limit, max(held(c), least)) end
    elseif slots then
      c.limit = max(1000, min(limit - 1000, max(c.reference, least)))
    elseif limit > 0 then
      if not guilty and value * 10 < limit * 9 then return end -- it was not at its cap
      if kind ~= PROBE and guilty == c then c.reference = c.reference - floor(c.reference / 100) end
      c.limit = min(floor(limit * 985 / 1000), held(c))
    elseif guilty == c or kind == WALL and good then
      c.limit = held(c)
    end
    rest(c, now)
  end

  local function touch(s, now, kind, in_use, at_once, ratio)
    local check = s.check
    s.mode, check.slots_below, check.starts_below = RUN, 0, 0
    if kind == CLUSTER then
      check.ratio, check.keep = ratio, 1000 - min(100, max(20, floor(ratio / 10)))
      check.slots_limit, check.starts_limit, check.tokens_limit = s.slots.limit, s.starts.limit, s.tokens.limit
      check.slots_reference, check.starts_reference, check.tokens_reference = s.slots.reference, s.starts.reference, s.tokens.reference
      check.slots_deviation, check.starts_deviation, check.tokens_deviation = s.slots.deviation, s.starts.deviation, s.tokens.deviation
      begin_check(s, now, CHECK, ratio)
    end
    local values, good = { max(1, at_once) * 1000 }, { true }
    for i = 2, 3 do values[i], good[i] = measure(s, s[i], now) end
    for i = 2, 3 do values[i], good[i] = sample(s, s[i], now, kind, values[i], good[i]) end
    for i = 2, 3 do
      local c = s[i]
      if in_minutes(s, c, now) then
        s.by_minute, s.by_minute_at = 1, now
        c.reference, c.deviation, values[i], good[i] = c.minute_total, min(c.deviation, STEADY[i]), c.minute_total, true
      end
    end
    local guilty = culprit(s, values, good)
    for i = 1, 3 do
      local c = s[i]
      if not guilty or c == guilty or not known(c) then cut(c, now, kind, ratio, guilty, values[i], good[i]) end
    end
    for i = 2, 3 do
      local c = s[i]
      c.level = min(c.level, 0)
      if good[i] then
        c.sample_at, c.sample_from, c.sample_stocked = now, c.taken, 0
        s.touched_starts = s.starts.taken
      end
    end
    mark(s, now, in_use)
  end

  -- end_check judges a cut: where the share of throttles stayed, neither slots nor rates were the reason.
  local function end_check(s, now, in_use)
    local check = s.check
    local ratio = floor(check.throttles * 10000 / max(1, check.starts))
    local useless = check.throttles >= 2 and ratio * 2 >= check.ratio
    if useless and s.mode == CHECK then -- no quota can refuse what lies well below what it gave meanwhile
      check.slots_below = max(1000, in_use * 900)
      check.starts_below = max(1000, floor((s.starts.taken - check.taken) * 54000 / max(500, now - check.at)))
      s.starts.level, check.ratio = 0, min(check.ratio, ratio)
      begin_check(s, now, DEEP_CHECK, ratio)
      return
    end
    if useless and ratio < 5000 then -- noise: the old values come back
      s.noise = max(s.noise, ratio)
      s.slots.limit, s.starts.limit, s.tokens.limit = check.slots_limit, check.starts_limit, check.tokens_limit
      s.slots.reference, s.starts.reference, s.tokens.reference = check.slots_reference, check.starts_reference, check.tokens_reference
      s.slots.deviation, s.starts.deviation, s.tokens.deviation = check.slots_deviation, check.starts_deviation, check.tokens_deviation
    elseif s.mode == DEEP_CHECK then -- less of all helped where fewer slots had not: a rate is the first suspect
      for i = 1, 2 do
        local c = s[i]
        local value = floor((i == 1 and check.slots_below or check.starts_below) * 10 / 9)
        if not (known(c) and c.held_back == 0) then
          learn(c, value)
          if c.limit == 0 or c.limit > value then
            c.reference = value
            c.limit = held(c)
          end
          rest(c, now)
        end
      end
      if s.tokens.held_back == 1 then
        s.tokens.limit = s.tokens.limit - floor(s.tokens.limit / 4)
        s.tokens.reference = s.tokens.limit
      end
    end
    s.mode, check.slots_below, check.starts_below = RUN, 0, 0
    mark(s, now, in_use)
  end

  -- ---- walls ----

  local function close(s, now, retry_after)
    local wall = s.wall
    local pause = min(settings(s).pause_ms * 2 ^ wall.again, PAUSE_MAX_MS)
    if retry_after > pause then pause = min(retry_after, RETRY_AFTER_MAX_MS) end
    s.mode, wall.open_at = CLOSED, now + pause
    local boundary = now - now % MINUTE + MINUTE + 100 -- a window's end may open it: never sleep over one
    if boundary < wall.open_at and boundary > now + 300 then wall.open_at = boundary end
  end

  -- reopen ends a wall. Where it was refused again with hardly anything running, time was the reason, not
  -- slots: a rate's window was used up.
  local function reopen(s, now, in_use)
    local wall, slots = s.wall, s.slots
    s.mode = RUN
    if wall.timed == 1 and wall.judged == 0 then
      wall.judged = 1
      local values = { 0, floor((s.starts.taken - wall.taken) * MINUTE / max(1000, now - wall.at)), 0 }
      if values[2] * 3 < wall.starts_minute then -- hardly anything was taken meanwhile: a minute used up, or an outage
        s.by_minute = 1
        values[2], values[3] = wall.starts_minute, wall.tokens_minute
        if (now - HALF_MS) % MINUTE < 3000 and wall.starts_calendar * 2 >= wall.starts_minute then
          values[2], values[3] = wall.starts_calendar, wall.tokens_calendar
        end
        slots.reference = max(wall.reference, slots.reference)
        if slots.reference == 0 then slots.reference = wall.limit end
        slots.limit = min(wall.limit, max(4000, in_use * 2000))
        slots.agreed, slots.deviation = 0, UNKNOWN
      end
      for i = 2, 3 do
        local c = s[i]
        if values[i] > 0 then
          learn(c, values[i])
          if s.by_minute == 1 then c.deviation = min(c.deviation, STEADY[i]) end
          if c.limit == 0 or c.limit > held(c) then c.limit = held(c) end
          rest(c, now)
          c.level = 0
        end
        c.sample_at, c.sample_from, c.sample_stocked = now, c.taken, 1
      end
      s.touched_starts = s.starts.taken
    end
    mark(s, now, in_use)
  end

  -- take_back uncounts a start that took nothing from the provider.
  local function take_back(s, stamp, tokens)
    for i = 2, 3 do
      local c = s[i]
      local cost = i == 2 and 1000 or tokens
      c.taken = c.taken - cost
      if stamp < c.sample_at then c.sample_from = c.sample_from - cost end -- it was counted before the sample began
    end
    if stamp < max(s.starts.sample_at, s.tokens.sample_at) then s.touched_starts = s.touched_starts - 1000 end
    if stamp < s.check.at then s.check.taken = s.check.taken - 1000 end
    if stamp < s.wall.at then s.wall.taken = s.wall.taken - 1000 end
  end

  local function undone(s, stamp, tokens)
    take_back(s, stamp, tokens)
    s.starts.level, s.tokens.level = s.starts.level + 1000 * MINUTE, s.tokens.level + tokens * MINUTE
    s.window_starts, s.mark_starts, s.unanswered = max(0, s.window_starts - 1), max(0, s.mark_starts - 1), max(0, s.unanswered - 1)
  end

  -- refused takes a throttle.
  local function refused(s, now, stamp, tokens, retry_after, in_use)
    local check, wall = s.check, s.wall
    take_back(s, stamp, tokens)
    s.tokens.level = s.tokens.level + tokens * MINUTE

    if s.mode == CLOSED then return end
    if s.mode == HALF_OPEN then
      if stamp < check.at then return end
      check.throttles = check.throttles + 1
      s.slots.limit = max(1000, min(s.slots.limit, in_use * 1000))
      if check.starts == 1 and in_use * 3 <= wall.in_use then wall.timed = 1 end -- refused with hardly anything running
      if check.throttles * 2 >= check.starts then
        wall.again = min(wall.again + 1, 4)
        close(s, now, retry_after)
      end
      return
    end
    if stamp < s.mark_at then return end -- old news

    s.window_throttles, s.mark_throttles, s.mark_in_use = s.window_throttles + 1, s.mark_throttles + 1, s.mark_in_use + in_use
    local starts = max(s.window_starts, s.previous_starts)
    local allowed = explained(s, starts)
    if is_wall(s, s.window_throttles, starts) or is_wall(s, s.mark_throttles, s.mark_starts) then
      if wall.at == 0 or now - wall.at > CHAIN_MS then
        wall.limit, wall.reference, wall.in_use, wall.timed, wall.judged = s.slots.limit, s.slots.reference, in_use, 0, 0
        wall.starts_minute, wall.tokens_minute = last_minute(s, s.starts, now), last_minute(s, s.tokens, now)
        wall.starts_calendar, wall.tokens_calendar = calendar_minute(s, s.starts, now), calendar_minute(s, s.tokens, now)
        wall.taken = s.starts.taken
      elseif in_use * 3 <= wall.in_use * 2 then
        wall.timed = 1 -- again, though fewer are running
      end
      touch(s, now, WALL, in_use, in_use, 10000)
      wall.at, wall.again = now, 0
      close(s, now, retry_after)
    elseif s.mode ~= RUN then
      if stamp - check.at > CHECK_SKIP_MS then check.throttles = check.throttles + 1 end
    elseif s.probing == 1 and s.window_throttles >= 1 + allowed then
      local starts_limit, tokens_limit = s.starts.limit, s.tokens.limit
      touch(s, now, PROBE, in_use, in_use, 0)
      if s.by_minute == 1 and (s.starts.limit < starts_limit or s.tokens.limit < tokens_limit) then
        wall.again, wall.at, wall.judged = 0, now, 1 -- a minute used up: wait for the next
        close(s, now, retry_after)
      end
    elseif s.window_throttles >= max(settings(s).min_throttles, floor((settings(s).loss_tolerance * starts + 999) / 1000)) + allowed then
      local ratio = min(10000, floor(s.window_throttles * 10000 / max(1, starts))) -- of calls that may have started long ago
      touch(s, now, CLUSTER, in_use, floor(s.mark_in_use / s.mark_throttles), ratio)
    end
  end

  -- facts tells what is known now, as integers, for status: phase; for slots, starts and tokens each the cap
  -- in force (0 none) and how sure it is (0 never touched, 1 a suspect, 2 known, 3 known by several samples,
  -- 4 configured); the ceiling that held calls back last (0 none); noise; ms until that ceiling may be probed;
  -- ms until a closed target opens.
  local function facts(s, now)
    now = max(now + s.clock_offset, s.clock_at)
    local binding, denied, list = 0, 0, { s.mode }
    for i = 1, 3 do
      local c = s[i]
      local limit, sure = in_force(s, c), 0
      if c.cap > 0 and limit == c.cap and (i > 1 or c.reference == 0) then
        sure = 4
      elseif known(c) then
        sure = c.agreed > 1 and 3 or 2
      elseif c.reference > 0 then
        sure = 1
      end
      list[2 * i], list[2 * i + 1] = limit, sure
      local weight = c.denied + c.held_back
      if limit > 0 and weight > denied then binding, denied = i, weight end
    end
    list[8], list[9] = binding, s.noise
    list[10] = binding > 0 and s[binding].reference > 0 and max(0, s[binding].rest_until - now) or 0
    list[11] = s.mode == CLOSED and max(0, s.wall.open_at - now) or 0
    return list
  end

  return { parse = parse, text_of = text_of, fresh = fresh, turn_rings = turn_rings, close_window = close_window,
    end_check = end_check, reopen = reopen, refused = refused, undone = undone, facts = facts }
end

local rare
local function rarely()
  rare = rare or make()
  return rare
end

-- ---- state ----

-- The settings that every call needs are taken from their text at once, the others when they are.
local function configuration(text)
  local max_slots, max_starts, max_tokens, background_share, rt_rate_share, window_ms, rest = match(text,
    '(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)')
  return { max_slots = max_slots * 1000, max_starts = max_starts * 1000, max_tokens = tonumber(max_tokens),
    background_share = tonumber(background_share), rt_rate_share = tonumber(rt_rate_share), window_ms = tonumber(window_ms), rest = rest }
end

-- A table whose field was not parsed yet is frozen: its first use, for reading or writing, thaws it.
local function thaw(object)
  setmetatable(object, nil)
  object.thawed[#object.thawed + 1] = object
  rarely().parse(object)
end

local FROZEN = {
  __index = function(object, name)
    thaw(object)
    return object[name]
  end,
  __newindex = function(object, name, value)
    thaw(object)
    object[name] = value
  end,
}

-- load makes the state of its fields, in the order of law.FIELDS; a first field that is missing (nil or
-- false) means that nothing is known yet. config_text: see LawConfig in law.go.
function law.load(now, config_text, fields)
  local config = configuration(config_text)
  if not fields[1] then return rarely().fresh(now, config) end
  local mode, slots_limit, starts_limit, tokens_limit, slots_denied, starts_denied, tokens_denied, starts_level, tokens_level,
    starts_taken, tokens_taken, clock_at, clock_offset, level_at, window_at, window_starts, window_peak, window_failed,
    mark_starts, rt_asked_at, rt_in_a_row, background_turn_until, testing, ring_slot, unanswered = match(fields[1], FLOW)
  local thawed = {}
  local slots = setmetatable({ field = 'slots', text = fields[3], thawed = thawed, index = 1, cap = config.max_slots,
    limit = tonumber(slots_limit), denied = tonumber(slots_denied) }, FROZEN)
  local starts = setmetatable({ field = 'starts', text = fields[4], thawed = thawed, index = 2, cap = config.max_starts,
    ring = 'starts_ring', limit = tonumber(starts_limit), denied = tonumber(starts_denied), level = tonumber(starts_level),
    taken = tonumber(starts_taken) }, FROZEN)
  local tokens = setmetatable({ field = 'tokens', text = fields[5], thawed = thawed, index = 3, cap = config.max_tokens,
    ring = 'tokens_ring', limit = tonumber(tokens_limit), denied = tonumber(tokens_denied), level = tonumber(tokens_level),
    taken = tonumber(tokens_taken) }, FROZEN)
  return setmetatable({ slots, starts, tokens, slots = slots, starts = starts, tokens = tokens, config = config,
    field = 'evidence', text = fields[2], thawed = thawed, flow = fields[1],
    check = setmetatable({ field = 'check', text = fields[6], thawed = thawed }, FROZEN),
    wall = setmetatable({ field = 'wall', text = fields[7], thawed = thawed }, FROZEN),
    starts_ring = setmetatable({ field = 'starts_ring', text = fields[8], thawed = thawed }, FROZEN),
    tokens_ring = setmetatable({ field = 'tokens_ring', text = fields[9], thawed = thawed }, FROZEN),
    mode = tonumber(mode), clock_at = tonumber(clock_at), clock_offset = tonumber(clock_offset),
    level_at = tonumber(level_at), window_at = tonumber(window_at), window_starts = tonumber(window_starts),
    window_peak = tonumber(window_peak), window_failed = tonumber(window_failed), mark_starts = tonumber(mark_starts),
    rt_asked_at = tonumber(rt_asked_at), rt_in_a_row = tonumber(rt_in_a_row),
    background_turn_until = tonumber(background_turn_until), testing = tonumber(testing), ring_slot = tonumber(ring_slot),
    unanswered = tonumber(unanswered) }, FROZEN)
end

-- dump gives the fields that changed since load, flat: name, text, name, text ...
function law.dump(s)
  local slots, starts, tokens, changed = s.slots, s.starts, s.tokens, {}
  local flow = format(FLOW_FORMAT, s.mode, slots.limit, starts.limit, tokens.limit, slots.denied, starts.denied, tokens.denied,
    starts.level, tokens.level, starts.taken, tokens.taken, s.clock_at, s.clock_offset, s.level_at, s.window_at, s.window_starts,
    s.window_peak, s.window_failed, s.mark_starts, s.rt_asked_at, s.rt_in_a_row, s.background_turn_until, s.testing, s.ring_slot,
    s.unanswered)
  if flow ~= rawget(s, 'flow') then changed[1], changed[2] = 'flow', flow end
  for i = 1, #s.thawed do
    local object = s.thawed[i]
    local text = rarely().text_of(object)
    if text ~= object.text then changed[#changed + 1], changed[#changed + 2] = object.field, text end
  end
  return changed
end

-- ---- what scripts call ----

-- clock gives the law's own time, which never runs back: when the server's does, the difference is
-- added for good, in whole minutes so that calendar minutes stay where they are.
local function clock(s, now)
  local at = now + s.clock_offset
  if at < s.clock_at - 1000 then
    s.clock_offset = s.clock_offset + floor((s.clock_at - at + MINUTE - 1) / MINUTE) * MINUTE
    at = now + s.clock_offset
  end
  s.clock_at = max(at, s.clock_at)
  return s.clock_at
end

-- roll turns to the next window, and the next 5 s of the rings.
local function roll(s, now, in_use)
  local slot = floor(now / RING_MS)
  if slot > s.ring_slot then rarely().turn_rings(s, slot) end
  if now - s.window_at >= s.config.window_ms then rarely().close_window(s, now, in_use) end
end

-- gate says whether a call may start: 0, or the code of what holds it back, and in how many ms to ask
-- again (0: nobody knows). It counts the refusal, not the start. background: how many of in_use.
function law.gate(s, now, is_rt, tokens, in_use, background)
  local config, check = s.config, s.check
  now = clock(s, now)
  roll(s, now, in_use)
  if s.mode == CHECK or s.mode == DEEP_CHECK then
    local spent = now - check.at
    if check.starts >= check.enough or spent > CHECK_MAX_MS and check.starts >= CHECK_STARTS or spent > 4 * CHECK_MAX_MS then
      rarely().end_check(s, now, in_use)
    end
  elseif s.mode == CLOSED then
    if now >= s.wall.open_at then s.mode, check.at, check.starts, check.throttles = HALF_OPEN, now, 0, 0 end
  elseif s.mode == HALF_OPEN then
    if now - check.at >= HALF_MS then rarely().reopen(s, now, in_use) end
  end
  if s.mode == CLOSED or s.mode == HALF_OPEN and check.starts >= 2 ^ floor((now - check.at) / HALF_STEP_MS) then
    if is_rt then s.rt_asked_at = now end
    return law.CLOSED, max(s.wall.open_at - now, HALF_STEP_MS)
  end

  -- A background call leaves room for rt, unless rt has had its turns.
  local yields = not is_rt and s.rt_in_a_row < RT_IN_A_ROW
  local reserve = is_rt and s.rt_in_a_row >= RT_IN_A_ROW and now < s.background_turn_until and 1 or 0
  local why, wait = 0, 0
  local limit = in_force(s, s.slots)
  if (in_use + reserve) * 1000 + 1000 > max(1000, limit) or yields and not (s.testing == 1 and limit < s.slots.cap)
    and background * 1000 + 1000 > max(1000, floor(limit * config.background_share / 1000)) then
    why = law.SLOTS
  end
  local elapsed = min(now - s.level_at, MINUTE)
  s.level_at = now
  for i = 2, 3 do
    local c = s[i]
    limit = in_force(s, c)
    if limit == 0 then
      c.level = 0
    else
      local cost, need = tokens, MINUTE
      if i == 2 then cost, need = 1000, (1 + reserve) * 1000 * MINUTE end
      local burst = floor(limit * BURST / 1000)
      c.level = min(max(max(burst, 2 * cost) * MINUTE, c.level), c.level + limit * elapsed)
      if yields then need = need + burst * config.rt_rate_share * 60 end
      if why == 0 and c.level < need then why, wait = i, floor((need - c.level) / limit) end
    end
  end
  if why ~= 0 then
    s[why].denied = s[why].denied + 1
  elseif yields and now - s.rt_asked_at < RT_FIRST_MS then
    why = law.TURN
  end
  if why ~= 0 and is_rt then s.rt_asked_at = now end
  if why ~= 0 and not is_rt then s.background_turn_until = now + min(wait, TURN_MAX_MS) + TURN_MS end
  return why, wait
end

-- started counts a start that the gate, and all else that was asked, let pass. in_use includes it. It
-- returns the law's time, for its lease.
function law.started(s, is_rt, tokens, in_use)
  local now, starts, tally = s.clock_at, s.starts, s.tokens
  if is_rt then
    s.rt_asked_at, s.rt_in_a_row = 0, min(s.rt_in_a_row + 1, RT_IN_A_ROW)
  else
    s.rt_in_a_row, s.background_turn_until = 0, 0
  end
  starts.taken, tally.taken = starts.taken + 1000, tally.taken + tokens
  starts.level, tally.level = starts.level - 1000 * MINUTE, tally.level - tokens * MINUTE
  s.window_starts, s.mark_starts = s.window_starts + 1, s.mark_starts + 1
  if s.mode ~= RUN and (s.mode == HALF_OPEN or now - s.check.at > CHECK_SKIP_MS) then s.check.starts = s.check.starts + 1 end
  s.window_peak, s.unanswered = max(s.window_peak, in_use), min(s.unanswered + 1, 1e6)
  return now
end

-- ended takes the outcome of a call: ok, throttled, failed or abandoned. stamp and tokens are what was
-- started with; tokens_used what an ok one cost; retry_after what a throttled one was told, in ms, or 0;
-- in_use no longer includes it.
function law.ended(s, now, stamp, tokens, outcome, tokens_used, retry_after, in_use)
  now = clock(s, now)
  if outcome == 'ok' then s.unanswered = 0 end
  roll(s, now, in_use + 1)
  if outcome == 'ok' then
    s.tokens.taken, s.tokens.level = s.tokens.taken + tokens_used - tokens, s.tokens.level - (tokens_used - tokens) * MINUTE
    return
  end
  if outcome == 'failed' then s.window_failed = s.window_failed + 1 end
  -- What is not known to be refused stays charged.
  if outcome == 'throttled' then rarely().refused(s, now, stamp, tokens, retry_after, in_use) end
end

-- undone takes back a start whose call was never made.
function law.undone(s, now, stamp, tokens)
  clock(s, now)
  rarely().undone(s, stamp, tokens)
end

-- facts tells what is known, for status: see ReadLearned in law_learned.go.
function law.facts(s, now) return rarely().facts(s, now) end
