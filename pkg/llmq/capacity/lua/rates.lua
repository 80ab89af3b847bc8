-- rates.lua: configured budgets of calls and tokens per minute. A chunk that scripts are built from,
-- after law.lua, whose local names for the standard library it shares; nothing here calls the server.
--
--   local r = rates.load(now, config_text, text, empty_at)   nil where nothing is configured
--   local which, wait = rates.wait(r, background, calls, tokens)
--   rates.take(r, background, calls, tokens)
--   rates.give(r, at, background, calls, tokens)
--   text = rates.text(r)
--
-- A budget is a bucket that fills all the time, up to a burst (smooth), or whole at each minute of the
-- calendar (fixed). Background calls draw on a part of their own besides, which fills and holds that
-- much less: what they leave is there for rt at once. Both are kept whichever is in force, so that the
-- window may be changed while calls run.
--
-- Units: levels are sixty-thousandths of a call or token, so that a rate per minute times ms adds to
-- them; used is calls or tokens of the calendar's minute. Shares are per mille. A debt (a call that cost
-- more than was reserved) lasts a minute at most.

local rates = {} -- luacheck: ignore 241
do
  local ceil = math.ceil
  local A_MINUTE = 60000
  local BUDGET, TEXT, FORMAT = string.rep('(%d+) ', 6), string.rep('(%S+) ', 10), string.rep('%.0f ', 10)
  rates.CALLS, rates.TOKENS = 1, 2

  -- load makes the budgets of their text. Without one nothing was drawn yet, or the store was wiped: then
  -- they were empty at empty_at, which is long ago in a store that was new.
  function rates.load(now, config, text, empty_at)
    local rpm, calls_burst, tpm, tokens_burst, share, fixed = match(config, BUDGET)
    if not rpm then return nil end
    local left = 1000 - share
    local function budget(limit, burst)
      limit, burst = tonumber(limit), tonumber(burst)
      return { limit = limit, full = burst * A_MINUTE, level = 0, background_level = 0, used = limit, background_used = limit,
        background_limit = max(1, floor(limit * left / 1000)), background_full = max(A_MINUTE, floor(burst * left / 1000) * A_MINUTE) }
    end
    local r = { budget(rpm, calls_burst), budget(tpm, tokens_burst), now = now, fixed = fixed == '1' }
    local calls, tokens = r[1], r[2]
    local at, minute = empty_at, floor(empty_at / A_MINUTE)
    if text then
      local a, b, c, d, e, f, g, h, i, j = match(text, TEXT)
      at, minute = tonumber(a), tonumber(b)
      calls.level, calls.background_level, calls.used, calls.background_used = tonumber(c), tonumber(d), tonumber(e), tonumber(f)
      tokens.level, tokens.background_level, tokens.used, tokens.background_used = tonumber(g), tonumber(h), tonumber(i), tonumber(j)
    end
    -- A clock that steps back fills nothing, and begins no new minute unless it stepped far.
    local elapsed = min(max(0, now - at), A_MINUTE)
    r.minute = floor(now / A_MINUTE)
    local begins = r.minute > minute or r.minute < minute - 2
    if not begins then r.minute = minute end
    for _, b in ipairs(r) do
      b.level = min(b.full, b.level + b.limit * elapsed)
      b.background_level = min(b.background_full, b.background_level + b.background_limit * elapsed)
      if begins then b.used, b.background_used = 0, 0 end
    end
    return r
  end

  function rates.text(r)
    local calls, tokens = r[1], r[2]
    return format(FORMAT, r.now, r.minute, calls.level, calls.background_level, calls.used, calls.background_used,
      tokens.level, tokens.background_level, tokens.used, tokens.background_used)
  end

  local function wait_for(r, b, background, cost)
    if b.limit == 0 or cost == 0 then return 0 end
    if r.fixed then
      if b.used + cost <= b.limit and (not background or b.background_used + cost <= b.background_limit) then return 0 end
      return A_MINUTE - r.now % A_MINUTE
    end
    local need, wait = cost * A_MINUTE, 0
    if b.level < need then wait = ceil((need - b.level) / b.limit) end
    if background and b.background_level < need then wait = max(wait, ceil((need - b.background_level) / b.background_limit)) end
    return wait
  end

  -- wait says which budget lacks the most (0: none) and in how many ms it will be there.
  function rates.wait(r, background, calls, tokens)
    local for_calls, for_tokens = wait_for(r, r[1], background, calls), wait_for(r, r[2], background, tokens)
    if for_calls == 0 and for_tokens == 0 then return 0, 0 end
    if for_calls >= for_tokens then return rates.CALLS, for_calls end
    return rates.TOKENS, for_tokens
  end

  local function move(b, back, in_minute, n)
    b.level = max(-b.limit * A_MINUTE, min(b.full, b.level + n * A_MINUTE))
    if in_minute or n < 0 then b.used = max(0, b.used - n) end -- what an earlier minute gave is not this one's
    if not back then return end
    b.background_level = max(-b.background_limit * A_MINUTE, min(b.background_full, b.background_level + n * A_MINUTE))
    if in_minute or n < 0 then b.background_used = max(0, b.background_used - n) end
  end

  function rates.take(r, background, calls, tokens)
    move(r[1], background, true, -calls)
    move(r[2], background, true, -tokens)
  end

  -- give returns what was drawn at a time, and charges more where it is negative.
  function rates.give(r, at, background, calls, tokens)
    local in_minute = floor(at / A_MINUTE) == r.minute
    move(r[1], background, in_minute, calls)
    move(r[2], background, in_minute, tokens)
  end

  -- left is what an rt call could draw now of a budget; -1 where there is none.
  function rates.left(r, which)
    local b = r and r[which]
    if not b or b.limit == 0 then return -1 end
    if r.fixed then return max(0, b.limit - b.used) end
    return max(0, floor(b.level / A_MINUTE))
  end
end
