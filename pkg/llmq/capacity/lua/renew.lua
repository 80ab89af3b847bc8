#!lua
-- renew.lua: keep slots for another lease. A slot that lapsed or was wiped is written
-- anew: its call is in flight, and counting it is the truth.
-- KEYS[1] llmq:<env>:cap:{cap}:<alias>@<target>:slots  zset  call id -> lease end in ms
-- ARGV[1] now_ms    integer, "" = server TIME
-- ARGV[2] lease_ms  integer > 0
-- ARGV[3] call_id   string
-- Returns {in_use}.
local slots = KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local lease, id = tonumber(ARGV[2]), ARGV[3]

redis.call('ZADD', slots, string.format('%.0f', now + lease), id)
return { redis.call('ZCARD', slots) }
