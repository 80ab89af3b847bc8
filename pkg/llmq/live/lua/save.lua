#!lua
-- save.lua: store a change of live settings, unless another one came first.
-- KEYS[1] llmq:<env>:live:{live}:settings  hash  revision, document, change
-- KEYS[2] llmq:<env>:live:{live}:audit     list  the changes as JSON, the last one first
-- ARGV[1] expected  integer >= 0: the revision that the change was made of
-- ARGV[2] document  string
-- ARGV[3] change    string: unique; a repeat after a lost answer changes nothing
-- ARGV[4] entry     string: JSON for the audit
-- ARGV[5] keep      integer > 0: so many changes are kept
-- Returns {saved, revision}; saved 1, or 0 where the revision is another. A revision that is no number is 0.
local state, audit = KEYS[1], KEYS[2]
local stored = redis.call('HMGET', state, 'revision', 'change')
local revision = tonumber(stored[1] or nil) or 0
if stored[2] == ARGV[3] then return { 1, revision } end
if revision ~= tonumber(ARGV[1]) then return { 0, revision } end
revision = revision + 1
redis.call('HSET', state, 'revision', string.format('%d', revision), 'document', ARGV[2], 'change', ARGV[3])
redis.call('LPUSH', audit, ARGV[4])
redis.call('LTRIM', audit, 0, tonumber(ARGV[5]) - 1)
return { 1, revision }
