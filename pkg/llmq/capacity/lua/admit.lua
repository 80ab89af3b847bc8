#!lua
-- admit.lua: take one slot of a target, or say when to ask again.
-- KEYS[1] llmq:<env>:cap:{cap}:<alias>@<target>:slots  zset  call id -> lease end in ms
-- ARGV[1] now_ms    integer, "" = server TIME
-- ARGV[2] call_id   string, unique to this admission; a repeat renews its slot
-- ARGV[3] lease_ms  integer > 0
-- ARGV[4] cap       integer > 0, slots of the target
-- Returns {code, in_use}; code 1 granted, 0 full.
local slots = KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local id, lease, cap = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

redis.call('ZREMRANGEBYSCORE', slots, '-inf', string.format('%.0f', now))
local in_use = redis.call('ZCARD', slots)
if not redis.call('ZSCORE', slots, id) then
  if in_use >= cap then
    return { 0, in_use }
  end
  in_use = in_use + 1
end
redis.call('ZADD', slots, string.format('%.0f', now + lease), id)
return { 1, in_use }
