-- law_store.lua: the state between the hash and the law. A part of law.lua. luacheck: ignore

-- The settings that every call needs are taken from their text at once, the others when they are.
local function configuration(text)
  local max_slots, max_starts, max_tokens, background_share, rt_rate_share, window_ms, rest = match(text,
    '(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)')
  return { max_slots = max_slots * 1000, max_starts = max_starts * 1000, max_tokens = max_tokens + 0,
    background_share = background_share + 0, rt_rate_share = rt_rate_share + 0, window_ms = window_ms + 0, rest = rest }
end

-- A table whose field was not parsed yet is frozen: its first use, for reading or writing, thaws it.
local function thaw(object)
  setmetatable(object, nil)
  object.thawed[#object.thawed + 1] = object
  object.text = object.text or law.fetch(object.field) -- a script that reads flow alone gives fetch
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
-- false) means that nothing is known yet; it fails at a first field of none of ours. config_text: see LawConfig in
-- law.go. (x + 0 makes a number of a text in half the time of tonumber.)
function law.load(now, config_text, fields)
  local config = configuration(config_text)
  if not fields[1] then return rarely().fresh(now, config) end
  local mode, slots_limit, starts_limit, tokens_limit, slots_denied, starts_denied, tokens_denied, starts_level, tokens_level,
    starts_taken, tokens_taken, clock_at, clock_offset, level_at, window_at, window_starts, window_peak, window_failed,
    mark_starts, rt_asked_at, rt_in_a_row, background_turn_until, testing, ring_slot, unanswered = match(fields[1], FLOW)
  local thawed = {}
  local slots = setmetatable({ field = 'slots', text = fields[3], thawed = thawed, index = 1, cap = config.max_slots,
    limit = slots_limit + 0, denied = slots_denied + 0 }, FROZEN)
  local starts = setmetatable({ field = 'starts', text = fields[4], thawed = thawed, index = 2, cap = config.max_starts,
    ring = 'starts_ring', limit = starts_limit + 0, denied = starts_denied + 0, level = starts_level + 0,
    taken = starts_taken + 0 }, FROZEN)
  local tokens = setmetatable({ field = 'tokens', text = fields[5], thawed = thawed, index = 3, cap = config.max_tokens,
    ring = 'tokens_ring', limit = tokens_limit + 0, denied = tokens_denied + 0, level = tokens_level + 0,
    taken = tokens_taken + 0 }, FROZEN)
  return setmetatable({ slots, starts, tokens, slots = slots, starts = starts, tokens = tokens, config = config,
    field = 'evidence', text = fields[2], thawed = thawed, flow = fields[1],
    check = setmetatable({ field = 'check', text = fields[6], thawed = thawed }, FROZEN),
    wall = setmetatable({ field = 'wall', text = fields[7], thawed = thawed }, FROZEN),
    starts_ring = setmetatable({ field = 'starts_ring', text = fields[8], thawed = thawed }, FROZEN),
    tokens_ring = setmetatable({ field = 'tokens_ring', text = fields[9], thawed = thawed }, FROZEN),
    mode = mode + 0, clock_at = clock_at + 0, clock_offset = clock_offset + 0,
    level_at = level_at + 0, window_at = window_at + 0, window_starts = window_starts + 0,
    window_peak = window_peak + 0, window_failed = window_failed + 0, mark_starts = mark_starts + 0,
    rt_asked_at = rt_asked_at + 0, rt_in_a_row = rt_in_a_row + 0,
    background_turn_until = background_turn_until + 0, testing = testing + 0, ring_slot = ring_slot + 0,
    unanswered = unanswered + 0 }, FROZEN)
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
