-- breaker.lua: a target that fails again and again is left alone for a while. A chunk that scripts are
-- built from, after law.lua, whose local names for the standard library it shares; nothing here calls the
-- server.
--
--   closed ── threshold failures in a window, and no fewer than answers ──▶ open ── cooldown ──▶ half open
--   half open: one call at a time is a probe, as long as it holds its slot
--     it was answered: closed · it failed: open · throttled, or no word of the target: the next one probes
--
-- Kept as text: failures answers window_at open_until probe; no text is closed with nothing counted. Only
-- what says that the target is broken (5xx, time-outs) is a failure: a throttle is none, and is no answer. A text
-- that is none of ours is nothing counted.

local breaker = {} -- luacheck: ignore 241
do
  local NOBODY, LONGEST_MS = '-', 3600000 -- open for longer than any cooldown: the clock stepped back, and one may try
  breaker.CLOSED, breaker.OPEN, breaker.HALF_OPEN = 0, 1, 2

  function breaker.load(now, text)
    local b = { state = breaker.CLOSED, failures = 0, answers = 0, window_at = 0, open_until = 0, probe = NOBODY }
    if not text then return b end
    local failures, answers, window_at, open_until, probe = match(text, '^(%d+) (%d+) (%d+) (%d+) (%S+)$')
    if not probe or #text > 160 then return b end
    b.failures, b.answers, b.window_at, b.open_until, b.probe =
      tonumber(failures), tonumber(answers), tonumber(window_at), tonumber(open_until), probe
    if b.open_until - now > LONGEST_MS then b.open_until = now end
    if b.open_until > 0 then b.state = now < b.open_until and breaker.OPEN or breaker.HALF_OPEN end
    return b
  end

  -- text is nil for a breaker that has nothing to remember.
  function breaker.text(b)
    if b.failures == 0 and b.open_until == 0 then return nil end
    return format('%d %d %d %d %s', b.failures, b.answers, b.window_at, b.open_until, b.probe)
  end

  function breaker.probing(b) return b.probe ~= NOBODY and b.probe or nil end

  function breaker.probe_with(b, id) b.probe = id end

  local function forget(b) b.failures, b.answers, b.window_at, b.open_until, b.probe = 0, 0, 0, 0, NOBODY end

  -- ended takes how a call ended and reports whether anything changed. failed: it says that the target is
  -- broken. config: threshold window_ms cooldown_ms.
  function breaker.ended(b, now, config, id, answered, failed)
    local threshold, window, cooldown = match(config, '(%d+) (%d+) (%d+)')
    cooldown = min(tonumber(cooldown), LONGEST_MS)
    if b.state ~= breaker.CLOSED then
      if b.probe ~= id then return false end -- it began before: the probe decides
      b.probe = NOBODY
      if answered then
        forget(b)
        b.state = breaker.CLOSED
      elseif failed then
        b.open_until, b.state = now + cooldown, breaker.OPEN
      end
      return true
    end
    if b.failures > 0 and now - b.window_at >= tonumber(window) then forget(b) end
    if answered and b.failures > 0 then
      b.answers = b.answers + 1
      return true
    end
    if not failed then return false end
    if b.failures == 0 then b.window_at = now end
    b.failures = b.failures + 1
    if b.failures >= tonumber(threshold) and b.failures >= b.answers then
      b.open_until, b.state = now + cooldown, breaker.OPEN
    end
    return true
  end
end
