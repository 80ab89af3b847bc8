-- law_touch.lua: a touch, what it teaches, and whether the cut helped. A part of law.lua's function make. luacheck: ignore

-- A check looks at so many starts: enough to tell the ratio that caused it from chance.
local CHECK_LEAST, CHECK_MOST, CHECK_THROTTLES = 20, 300, 60000 -- the last: 6 throttles at that ratio per 10,000
local KEEP_LEAST, KEEP_MOST = 20, 100 -- per mille: what a check takes off all ceilings, by the ratio
local CUT_LEAST, CUT_MOST = 200, 5000 -- per 10,000: the most that weak evidence cuts; half the ratio between them
local DEEP_KEEP = 900 --          per mille of what was taken that a deep check leaves: no quota refuses that
local NOISE_MOST = 5000 --        per 10,000: more than half refused is never noise
local MINUTE_LATE_MS = 50000 --   later in a minute, what it took and what the last 60 s took are one
local MINUTE_SHARE = 9 --         tenths of the last 60 s that a quota by the minute took in its own minute
local SHED = 100 --               a guilty rate's reference loses a 100th: it is the most that was ever taken

local function begin_check(s, now, mode, ratio)
  local check = s.check
  s.mode = mode
  check.at, check.starts, check.throttles, check.taken = now, 0, 0, s.starts.taken
  check.enough = min(CHECK_MOST, max(CHECK_LEAST, floor(CHECK_THROTTLES / max(1, ratio))))
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
  if total <= 0 or total * 10 < last_minute(s, c, now) * MINUTE_SHARE or now % MINUTE > MINUTE_LATE_MS then return false end
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
  local least = limit - floor(limit * min(CUT_MOST, max(CUT_LEAST, floor(ratio / 2))) / 10000) -- weak evidence cuts little
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
    if kind ~= PROBE and guilty == c then c.reference = c.reference - floor(c.reference / SHED) end
    c.limit = min(floor(limit * HOLD[2] / 1000), held(c))
  elseif guilty == c or kind == WALL and good then
    c.limit = held(c)
  end
  rest(c, now)
end

local function touch(s, now, kind, in_use, at_once, ratio)
  local check = s.check
  s.mode, check.slots_below, check.starts_below = RUN, 0, 0
  if kind == CLUSTER then
    check.ratio, check.keep = ratio, 1000 - min(KEEP_MOST, max(KEEP_LEAST, floor(ratio / 10)))
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
    local taken, below = s.starts.taken - check.taken, 0
    if taken >= CHECK_STARTS * 1000 then below = max(1000, floor(taken * DEEP_KEEP * 60 / max(500, now - check.at))) end
    check.slots_below, check.starts_below = max(1000, in_use * DEEP_KEEP), below -- of fewer no rate can be told
    s.starts.level, check.ratio = 0, min(check.ratio, ratio)
    begin_check(s, now, DEEP_CHECK, ratio)
    return
  end
  if useless and ratio < NOISE_MOST then -- noise: the old values come back
    s.noise = max(s.noise, ratio)
    s.slots.limit, s.starts.limit, s.tokens.limit = check.slots_limit, check.starts_limit, check.tokens_limit
    s.slots.reference, s.starts.reference, s.tokens.reference = check.slots_reference, check.starts_reference, check.tokens_reference
    s.slots.deviation, s.starts.deviation, s.tokens.deviation = check.slots_deviation, check.starts_deviation, check.tokens_deviation
  elseif s.mode == DEEP_CHECK then -- less of all helped where fewer slots had not: a rate is the first suspect
    for i = 1, 2 do
      local c = s[i]
      local value = floor((i == 1 and check.slots_below or check.starts_below) * 1000 / DEEP_KEEP)
      if value > 0 and not (known(c) and c.held_back == 0) then
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
