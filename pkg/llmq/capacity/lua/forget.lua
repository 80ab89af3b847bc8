#!lua
-- forget.lua: what was learned of a target's limits, or what its breaker counted, is as of a target that nobody has called. Slots that
-- are held, budgets and counts of calls stay.
-- KEYS[1] llmq:<env>:cap:{cap}:<alias>@<target>:state  hash  the law's fields, breaker, and more
-- ARGV[1] what  string: limits, breaker
-- Returns {forgotten}: how many fields there were.
-- include law.lua
if ARGV[1] == 'limits' then return { redis.call('HDEL', KEYS[1], unpack(law.FIELDS)) } end
return { redis.call('HDEL', KEYS[1], 'breaker') }
