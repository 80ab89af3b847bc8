#!lua
-- settle.lua: return a slot and count how its call ended. Only a slot that is still
-- held is counted, so a repeat changes nothing.
-- KEYS[1] llmq:<env>:cap:{cap}:<alias>@<target>:slots  zset  call id -> lease end in ms
-- KEYS[2] llmq:<env>:cap:{cap}:<alias>@<target>:tally  hash  ending -> calls
-- ARGV[1] call_id  string
-- ARGV[2] ending   string: ok, throttled, failed, abandoned
-- Returns {returned}; 1 the slot was held until now, 0 it was not.
local slots, tally = KEYS[1], KEYS[2]
local id, ending = ARGV[1], ARGV[2]

local returned = redis.call('ZREM', slots, id)
if returned == 1 then
  redis.call('HINCRBY', tally, ending, 1)
end
return { returned }
