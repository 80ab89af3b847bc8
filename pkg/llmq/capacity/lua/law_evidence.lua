-- law_evidence.lua: what was counted, and what is known of a ceiling by it. A part of law.lua's function make.
-- luacheck: ignore

local NOISE_DEVIATIONS = 2 --          so many standard deviations of random refusals are no evidence
local WALL_THROTTLES, WALL_FEW = 8, 4 -- throttles that make a wall where pause_ratio of the starts are refused;
local WALL_FEW_MORE = 100 --           or fewer where so much more are, per mille
local SAMPLE_MS = 5000 --              a rate's sample lasts so long at least, and
local SAMPLE_STARTS = 20 --            holds so many starts, else chance is most of it;
local SAMPLE_ENOUGH_MS = 30000 --      or lasts so long, however few they are
local SAMPLE_LEAST_MS = 500 --         a shorter time would make any call a high rate
local MINUTE_MOST_MS = 50000 --        a quota by the minute shows nothing in less of it
local WRONG_MOST = 200 --              per mille: one odd sample never makes more of a deviation than so much
local AGREED_MOST = 3 --               more samples that agree make nothing surer
local REST_MS, REST_MAX_MS = 1000, 20000 -- from a touch to the next probe; tripled with each sample that agrees
local REST_TIMES = 3

-- explained is how many throttles among so many starts are noise: its share and twice the deviation.
local function explained(s, starts)
  local thousandths = floor(s.noise * starts / 10)
  return floor((thousandths + NOISE_DEVIATIONS * floor(sqrt(thousandths * 1000))) / 1000)
end

-- A wall: most of what starts is refused.
local function is_wall(s, throttles, starts)
  local noise, allowed = floor(s.noise * starts / 10000), explained(s, starts)
  local refused = (throttles - noise) * 1000
  return throttles >= WALL_THROTTLES + allowed and refused >= settings(s).pause_ratio * (starts - noise)
    or throttles >= WALL_FEW + allowed and refused >= (settings(s).pause_ratio + WALL_FEW_MORE) * (starts - noise)
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
  if s.by_minute == 1 and elapsed < MINUTE_MOST_MS then return 0, false end
  if s.by_minute == 1 or elapsed > MINUTE then taken, elapsed = last_minute(s, c, now) end
  local enough = elapsed >= SAMPLE_MS and s.starts.taken - s.touched_starts >= SAMPLE_STARTS * 1000 or elapsed >= SAMPLE_ENOUGH_MS
  return floor(taken * MINUTE / max(SAMPLE_LEAST_MS, elapsed)), enough and taken > 0
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
  c.deviation = floor((c.deviation + min(WRONG_MOST, floor(off * 1000 / c.reference))) / 2)
  if not near(c, value) then
    c.reference, c.agreed = value, 0
    return
  end
  c.agreed = min(AGREED_MOST, c.agreed + 1)
  local weight = 3
  if c.index > 1 and c.limit > 0 and value <= c.reference then weight = 7 end -- a lower rate may be our own pacing
  c.reference = floor((weight * c.reference + value) / (weight + 1))
end

-- rest keeps a ceiling from being probed for a while, the longer the more samples agreed.
local function rest(c, now)
  c.rest_until, c.growth = now + min(REST_MS * REST_TIMES ^ c.agreed, REST_MAX_MS), 0
end
