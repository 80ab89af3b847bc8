-- epoch.lua: when admissions begin, in ms. A chunk that scripts are built from; it needs tonumber and format as locals. It is
-- later than now for a while where the store was wiped, or was lost to all who may run calls without it: both are
-- seen by whoever asks first. By then every call in flight is known again, since its process renews what it holds every 10 s.

local QUARANTINE_MS, AWAY_MS = 15000, 30000
local function opens_at(epoch_key, heard_key, at)
  local known = redis.call('MGET', epoch_key, heard_key)
  local opens, last = tonumber(known[1] or nil), tonumber(known[2] or nil)
  local wiped = not opens or opens - at > QUARANTINE_MS -- the second: a clock that stepped back
  if wiped or last and at - last > AWAY_MS and opens < last + AWAY_MS then
    opens = at + QUARANTINE_MS
    redis.call('SET', epoch_key, format('%d', opens))
  end
  return opens
end
