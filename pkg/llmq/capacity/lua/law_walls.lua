-- law_walls.lua: most calls refused: closed, half open, open; and single throttles, which lead there. A part of
-- law.lua's function make. luacheck: ignore

local PAUSE_MAX_MS, RETRY_AFTER_MAX_MS = 5000, 20000 -- closed at most, by ourselves; by a Retry-After, which may lie
local PAUSES_MOST = 4 --          doublings of a pause
local BOUNDARY_MS, NEAR_BOUNDARY_MS = 100, 300 -- after a minute's end it opens; one so near that is missed anyway
local FEW = 3 --                  a third of what ran at the wall is hardly anything running
local OPENED_MS = 3000 --         opened so soon after a minute's begin, it was the minute

local function close(s, now, retry_after)
  local wall = s.wall
  local pause = min(settings(s).pause_ms * 2 ^ wall.again, PAUSE_MAX_MS)
  if retry_after > pause then pause = min(retry_after, RETRY_AFTER_MAX_MS) end
  s.mode, wall.open_at = CLOSED, now + pause
  local boundary = now - now % MINUTE + MINUTE + BOUNDARY_MS -- a window's end may open it: never sleep over one
  if boundary < wall.open_at and boundary > now + NEAR_BOUNDARY_MS then wall.open_at = boundary end
end

-- reopen ends a wall. Where it was refused again with hardly anything running, time was the reason, not
-- slots: a rate's window was used up.
local function reopen(s, now, in_use)
  local wall, slots = s.wall, s.slots
  s.mode = RUN
  if wall.timed == 1 and wall.judged == 0 then
    wall.judged = 1
    local values = { 0, floor((s.starts.taken - wall.taken) * MINUTE / max(1000, now - wall.at)), 0 }
    if values[2] * FEW < wall.starts_minute then -- hardly anything was taken meanwhile: a minute used up, or an outage
      s.by_minute = 1
      values[2], values[3] = wall.starts_minute, wall.tokens_minute
      if (now - HALF_MS) % MINUTE < OPENED_MS and wall.starts_calendar * 2 >= wall.starts_minute then
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
    if check.starts == 1 and in_use * FEW <= wall.in_use then wall.timed = 1 end -- refused with hardly anything running
    if check.throttles * 2 >= check.starts then
      wall.again = min(wall.again + 1, PAUSES_MOST)
      close(s, now, retry_after)
    end
    return
  end
  if stamp < s.mark_at then return end -- old news

  s.window_throttles, s.mark_throttles, s.mark_in_use = s.window_throttles + 1, s.mark_throttles + 1, s.mark_in_use + in_use
  local starts = max(s.window_starts, s.previous_starts)
  local allowed = explained(s, starts)
  if is_wall(s, s.window_throttles, starts) or is_wall(s, s.mark_throttles, s.mark_starts) then
    -- Counted from the last opening: what was taken before a new wall is measured, and an outage has left little of it.
    if wall.at == 0 or now - max(wall.at, wall.open_at) > CHAIN_MS then
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
