-- rates.lua: configured budgets of calls and of tokens per minute, each by itself. A chunk that scripts are
-- built from; it needs floor, max, min, tonumber, match and format as locals, and calls no server.
--
--   local wait, text = rates.draw(now, config, text, empty_at, background, need, cost)   text only where wait is 0
--   text = rates.give(now, config, text, at, background, n)
--   local left, used = rates.left(now, config, text, empty_at)
--
-- A budget is a bucket that fills all the time, up to a burst (smooth), or whole at each minute of the
-- calendar (fixed). Background calls draw on a part of their own besides, which fills and holds that
-- much less: what they leave is there for rt at once. Both kinds are kept whichever is in force, so that
-- the window may be changed while calls run.
--
-- config: limit burst part_limit part_burst fixed. text: at level part_level used part_used; a level is
-- sixty-thousandths of a call or token, so that a rate per minute times ms adds to it; used is of the
-- minute that at lies in. A debt (a call that cost more than was reserved) lasts a minute at most.

local rates = {} -- luacheck: ignore 241
do
  local ceil, A_MINUTE, FAR_BACK = math.ceil, 60000, -120000
  local CONFIG, TEXT, FORMAT = '(%d+) (%d+) (%d+) (%d+) (%d)', '(%S+) (%S+) (%S+) (%S+) (%S+)', '%d %d %d %d %d'

  -- filled is a budget as it is now. Without a text nothing was drawn yet, or the store was wiped: then it was
  -- empty at empty_at, which is long ago in a store that was new.
  local function filled(now, config, text, empty_at)
    local limit, burst, part_limit, part_burst, fixed = match(config, CONFIG)
    local full, part_full = burst * A_MINUTE, part_burst * A_MINUTE
    limit, part_limit = tonumber(limit), tonumber(part_limit)
    local at, level, part_level, used, part_used = empty_at, 0, 0, limit, limit
    if text then
      at, level, part_level, used, part_used = match(text, TEXT)
      at, used, part_used = tonumber(at), tonumber(used), tonumber(part_used)
    end
    -- A clock that steps back fills nothing until it has caught up, unless it stepped far.
    local elapsed = now - at
    if elapsed > 0 and floor(now / A_MINUTE) > floor(at / A_MINUTE) or elapsed < FAR_BACK then used, part_used = 0, 0 end
    if elapsed > 0 or elapsed < FAR_BACK then at = now end
    elapsed = min(max(0, elapsed), A_MINUTE)
    level, part_level = min(full, level + limit * elapsed), min(part_full, part_level + part_limit * elapsed)
    return fixed == '1', limit, full, part_limit, part_full, at, level, part_level, used, part_used
  end

  -- draw takes cost where need is there. Else it says in how many ms it will be.
  function rates.draw(now, config, text, empty_at, background, need, cost)
    local fixed, limit, _, part_limit, _, at, level, part_level, used, part_used = filled(now, config, text, empty_at)
    if fixed then
      if used + need > limit or background and part_used + need > part_limit then return A_MINUTE - now % A_MINUTE end
    else
      local lacks, part_lacks = need * A_MINUTE - level, background and need * A_MINUTE - part_level or 0
      if lacks > 0 or part_lacks > 0 then return ceil(max(lacks / limit, part_lacks / part_limit)) end
    end
    level, used = max(-limit * A_MINUTE, level - cost * A_MINUTE), used + cost
    if background then part_level, part_used = max(-part_limit * A_MINUTE, part_level - cost * A_MINUTE), part_used + cost end
    return 0, format(FORMAT, at, level, part_level, used, part_used)
  end

  -- give returns what was drawn at a time, and charges more where n is negative. What was drawn in an earlier
  -- minute is not given to this one.
  function rates.give(now, config, text, drawn_at, background, n)
    local _, limit, full, part_limit, part_full, at, level, part_level, used, part_used = filled(now, config, text, 0)
    local counts = n < 0 or floor(drawn_at / A_MINUTE) == floor(at / A_MINUTE)
    level = max(-limit * A_MINUTE, min(full, level + n * A_MINUTE))
    if counts then used = max(0, used - n) end
    if background then
      part_level = max(-part_limit * A_MINUTE, min(part_full, part_level + n * A_MINUTE))
      if counts then part_used = max(0, part_used - n) end
    end
    return format(FORMAT, at, level, part_level, used, part_used)
  end

  -- left is what an rt call could draw now, and what was drawn in this minute; -1 where no budget is set.
  function rates.left(now, config, text, empty_at)
    if config == '' then return -1, -1 end
    local fixed, limit, _, _, _, _, level, _, used = filled(now, config, text, empty_at)
    if fixed then return max(0, limit - used), used end
    return max(0, floor(level / A_MINUTE)), used
  end
end
