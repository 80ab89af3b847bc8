-- rates.lua: configured budgets of calls and of tokens per minute, each by itself. A chunk that scripts are
-- built from; it needs floor, max, min, tonumber, match and format as locals, and calls no server.
--
--   text = rates.from(config, text, opens)                                     as it was, or empty since then
--   local wait, text = rates.draw(now, config, text, background, need, cost)   text only where wait is 0
--   text = rates.give(now, config, text, drawn_at, background, n)
--   local left, used = rates.left(now, config, text)
--
-- A budget is a bucket that fills all the time, up to a burst (smooth), or whole at each minute of the
-- calendar (fixed). Background calls draw on a part of their own besides, which fills and holds that
-- much less: what they leave is there for rt at once. Both kinds are kept whichever is in force, so that
-- the window may be changed while calls run.
--
-- config: limit burst fixed part_limit part_burst. text: at level used, then the same of the part; a level is
-- sixty-thousandths of a call or token, so that a rate per minute times ms adds to it; used is of the
-- minute that at lies in. A debt (a call that cost more than was reserved) lasts a minute at most. What is no
-- such text is a budget that nothing was drawn of yet: of it draw and give are nil, and rates.known is.

local rates = {} -- luacheck: ignore 241
do
  local ceil, A_MINUTE, FAR_BACK = math.ceil, 60000, -120000
  local FILLS_MS = 2 * A_MINUTE -- from the deepest debt to the highest burst, which are a minute's each
  local CONFIG, PART_CONFIG = '(%d+) (%d+) (%d) (.*)', '(%d+) (%d+)'
  local TEXT, PART, LONGEST = '^(%-?%d+) (%-?%d+) (%d+) (%-?%d+ %-?%d+ %d+)$', '(%S+) (%S+) (%S+)', 120
  local FORMAT, PART_FORMAT = '%d %d %d %s', '%d %d %d'

  -- filled is a bucket as it is now, given as it was or, of its text, in words. A clock that steps back fills
  -- nothing until it has caught up, unless it stepped far: then the bucket is full, for of a refusal nothing
  -- is written, and one that filled from then on would never be seen to.
  local function filled(now, limit, burst, at, level, used)
    local elapsed = now - at
    if elapsed > 0 and floor(now / A_MINUTE) > floor(at / A_MINUTE) or elapsed < FAR_BACK then used = 0 end
    if elapsed > 0 or elapsed < FAR_BACK then at = now end
    if elapsed < FAR_BACK then level = burst * A_MINUTE end
    level = max(-limit * A_MINUTE, tonumber(level)) -- the limit may have been lowered since
    return tonumber(at), min(burst * A_MINUTE, level + limit * min(max(0, elapsed), FILLS_MS)), tonumber(used)
  end

  -- draw gives how long to wait, or what is left of a bucket.
  local function draw(now, fixed, limit, burst, need, cost, at, level, used)
    limit = tonumber(limit)
    at, level, used = filled(now, limit, burst, at, level, used)
    if fixed == '1' then
      if used + need > limit then return A_MINUTE - now % A_MINUTE end
    elseif level < need * A_MINUTE then
      return ceil((need * A_MINUTE - level) / limit)
    end
    return 0, at, max(-limit * A_MINUTE, level - cost * A_MINUTE), used + cost
  end

  local function give(now, limit, burst, drawn_at, n, at, level, used)
    at, level, used = filled(now, limit, burst, at, level, used)
    if n < 0 or floor(drawn_at / A_MINUTE) == floor(at / A_MINUTE) then used = max(0, used - n) end -- not an earlier minute's
    return at, max(-limit * A_MINUTE, min(burst * A_MINUTE, level + n * A_MINUTE)), used
  end

  local function read(text)
    if text and #text < LONGEST then return match(text, TEXT) end
  end

  function rates.known(text) return read(text) ~= nil end

  -- from is a budget where admissions began at a time. One that was last drawn before, or of which nothing is known, was empty
  -- then: what was drawn meanwhile, without the store, nobody wrote down.
  function rates.from(config, text, opens)
    local at = read(text)
    if at and tonumber(at) >= opens then return text end
    local limit, part_limit = match(config, '(%d+) %d+ %d (%d+)')
    return format('%d 0 %d %d 0 %d', opens, limit, opens, part_limit)
  end

  -- draw takes cost where need is there. Else it says in how many ms it will be.
  function rates.draw(now, config, text, background, need, cost)
    local at, level, used, part = read(text)
    if not at then return nil end
    local limit, burst, fixed, part_config = match(config, CONFIG)
    local wait
    wait, at, level, used = draw(now, fixed, limit, burst, need, cost, at, level, used)
    if background then
      local part_limit, part_burst = match(part_config, PART_CONFIG)
      local part_wait, part_at, part_level, part_used = draw(now, fixed, part_limit, part_burst, need, cost, match(part, PART))
      wait = max(wait, part_wait)
      if part_wait == 0 then part = format(PART_FORMAT, part_at, part_level, part_used) end
    end
    if wait > 0 then return wait end
    return 0, format(FORMAT, at, level, used, part)
  end

  -- give returns what was drawn at a time, and charges more where n is negative.
  function rates.give(now, config, text, drawn_at, background, n)
    local at, level, used, part = read(text)
    if not at then return nil end
    local limit, burst, _, part_config = match(config, CONFIG)
    if background then
      local part_limit, part_burst = match(part_config, PART_CONFIG)
      part = format(PART_FORMAT, give(now, part_limit, part_burst, drawn_at, n, match(part, PART)))
    end
    at, level, used = give(now, limit, burst, drawn_at, n, at, level, used)
    return format(FORMAT, at, level, used, part)
  end

  -- left is what an rt call could draw now, and what was drawn in this minute; -1 where no budget is set.
  function rates.left(now, config, text)
    if config == '' then return -1, -1 end
    local limit, burst, fixed = match(config, CONFIG)
    local _, level, used = filled(now, limit, burst, match(text, '(%S+) (%S+) (%S+)'))
    if fixed == '1' then return max(0, limit - used), used end
    return max(0, floor(level / A_MINUTE)), used
  end
end
