#!lua
-- append.lua: keep what a request's stream goes on to say, under its claim's fence, and wake who reads it. From then on
-- nobody runs the request anew.
-- KEYS[1] llmq:<env>:clm:<tenant hash>:{<rid>}  hash    state, fence, owner, cancelled, streamed
-- KEYS[2] llmq:<env>:st:<tenant hash>:{<rid>}   stream  pieces; the id of each is the offset of its end, in bytes
-- ARGV[1] owner       string, as taken
-- ARGV[2] fence       integer, as taken
-- ARGV[3] at          integer >= 0, offset of the piece's first byte
-- ARGV[4] piece       string, not empty, whole events
-- ARGV[5] keep_bytes  integer > 0, of the pieces that are kept: the last ones
-- ARGV[6] until_ms    integer, how long they are kept
-- ARGV[7] channel     string, told with the offset of the end
-- Returns {code}; code 1 kept, now or by an earlier try; 2 kept, but the request is cancelled; 0 another owner has the
--   claim or stored a result.
local claim, st = KEYS[1], KEYS[2]
local owner, fence, at, piece = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local keep, until_ms, channel = tonumber(ARGV[5]), ARGV[6], ARGV[7]

local c = redis.call('HMGET', claim, 'state', 'fence', 'owner', 'cancelled')
if c[1] and (c[1] ~= 'running' or c[2] ~= fence or c[3] ~= owner) then
  return { 0 }
end
local code = 1
if c[4] == '1' then code = 2 end

local to = at + string.len(piece)
local last = redis.call('XREVRANGE', st, '+', '-', 'COUNT', 1)
if last[1] then
  local from = tonumber(string.match(last[1][1], '^%d+'))
  if from >= to then
    return { code }
  end
  if from > at then piece = string.sub(piece, from - at + 1) end
end
local id = string.format('%.0f', to)
if c[1] then -- else the store was emptied while we ran; a renewal writes the claim anew
  redis.call('HSET', claim, 'streamed', id)
end
redis.call('XTRIM', st, 'MINID', string.format('%.0f-0', math.max(to - keep, 0)))
if string.len(piece) <= keep then -- whoever misses one waits for the result
  redis.call('XADD', st, id .. '-0', 'p', piece)
  redis.call('PEXPIREAT', st, until_ms)
end
redis.call('PUBLISH', channel, id)
return { code }
