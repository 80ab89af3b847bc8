#!lua
-- renew.lua: keep slots of one target for another lease. A slot that lapsed or was wiped is written anew:
-- its call is in flight, and counting it is the truth.
-- KEYS[1] llmq:<env>:cap:{cap}:epoch  string  when admissions begin, in ms; none: the store was wiped
-- KEYS[2] llmq:<env>:cap:{cap}:<alias>@<target>:rt    zset  call id -> lease end in ms
-- KEYS[3] llmq:<env>:cap:{cap}:<alias>@<target>:bg    zset  the same
-- KEYS[4] llmq:<env>:cap:{cap}:<alias>@<target>:bulk  zset  the same
-- KEYS[5] llmq:<env>:cap:{cap}:@<provider>:slots      zset  call id -> lease end in ms, over all its targets
-- ARGV[1] now_ms    integer, "" = server TIME
-- ARGV[2] lease_ms  integer > 0
-- ARGV[3] shared    integer, 1: the provider has a cap
-- ARGV[4] leases    string: lane call_id lane call_id ...
-- Returns {renewed, anew}; anew: how many were not held any more.
local epoch, shared_slots = KEYS[1], KEYS[5]
local lanes = { rt = KEYS[2], bg = KEYS[3], bulk = KEYS[4] }
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local QUARANTINE_MS = 15000 -- as in admit.lua
redis.call('SET', epoch, string.format('%d', now + QUARANTINE_MS), 'NX')

local lease_end, renewed, anew = string.format('%d.5', now + ARGV[2]), 0, 0 -- .5: prolonged, see admit.lua
for lane, id in string.gmatch(ARGV[4], '(%S+) (%S+)') do
  anew = anew + redis.call('ZADD', lanes[lane], lease_end, id)
  if ARGV[3] == '1' then redis.call('ZADD', shared_slots, lease_end, id) end
  renewed = renewed + 1
end
return { renewed, anew }
