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
-- A check counts calls that start so long after the cut; it ends after so long if so many did, for of fewer no ratio can
-- be told (two throttles make a cut useless), and after four times as long whatever was seen.
local CHECK_SKIP_MS, CHECK_MAX_MS, CHECK_STARTS, CHECK_PATIENCE = 500, 15000, 3, 4
local HALF_STEP_MS, HALF_MS = 400, 2400

-- The fields of the hash, each a list of integers. Every call reads and writes flow; another is parsed when one of its
-- numbers is first used, and written when one changed. (A field per number costs ten times as much: ADR 15.)
law.FIELDS = { 'flow', 'evidence', 'slots', 'starts', 'tokens', 'check', 'wall', 'starts_ring', 'tokens_ring' }

local FLOW = '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) '
  .. '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)'
local FLOW_FORMAT = '%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d '
  .. '%d %d %d %d %d %d %d %d %d'

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
  -- By ceiling: slots, starts, tokens. HOLD is where a known one is held, per mille of its reference; NEAR how far
  -- off a sample may lie and still agree; STEADY the deviation up to which it is known. A rate is measured less
  -- exactly than slots are, and held nearer to its quota, which a bucket's burst forgives.
  local HOLD, NEAR, STEADY, UNKNOWN = { 970, 985, 985 }, { 25, 50, 60 }, { 30, 60, 80 }, 120
  local CHAIN_MS = 15000 -- walls so close together have one cause: an outage's refusals, however long it lasts, are one wall
  -- Kinds of touch: throttles in a cluster; one throttle of a probe; a wall of them.
  local CLUSTER, PROBE, WALL = 1, 2, 3
  local sqrt, gmatch, concat = math.sqrt, string.gmatch, table.concat

  -- include law_fields.lua
  -- include law_evidence.lua
  -- include law_growth.lua
  -- include law_touch.lua
  -- include law_walls.lua

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

  -- turn is how many ms lie between two starts, by what started in the last minute. Where nothing did, it is more
  -- than that long.
  local function turn(s, now)
    local taken, elapsed = last_minute(s, s.starts, max(now + s.clock_offset, s.clock_at))
    return elapsed * 1000 / max(1000, taken)
  end

  return { parse = parse, text_of = text_of, fresh = fresh, turn_rings = turn_rings, close_window = close_window,
    end_check = end_check, reopen = reopen, refused = refused, undone = undone, facts = facts,
    turn = turn }
end

local rare
local function rarely()
  rare = rare or make()
  return rare
end

-- include law_store.lua

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
    if check.starts >= check.enough or spent > CHECK_MAX_MS and check.starts >= CHECK_STARTS or spent > CHECK_PATIENCE * CHECK_MAX_MS then
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

function law.turn(s, now) return rarely().turn(s, now) end
