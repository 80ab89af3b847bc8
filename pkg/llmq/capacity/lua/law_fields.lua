-- law_fields.lua: the seldom parsed fields of the state, their names in order, and a state that knows nothing.
-- A part of law.lua's function make. luacheck: ignore

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
