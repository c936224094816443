-- One change of an override: compare, write all fields, append to the audit, tell everybody.
--
-- KEYS[1] the override, a hash. KEYS[2] its audit, a stream.
-- ARGV[1] the version that must be there ('' : any). ARGV[2] how long the temporary part lasts, µs ('' : as said in ARGV[3]).
-- ARGV[3] when it ends, µs ('' : no temporary part). ARGV[4] the channel. ARGV[5] the audit entry, JSON. ARGV[6] entries kept.
-- ARGV[7…] fields and values.
-- Returns {1, version, until} or {0, the version that is there, ''}.

local stored = tonumber(redis.call('HGET', KEYS[1], 'version')) or 0
if ARGV[1] ~= '' and tonumber(ARGV[1]) ~= stored then return { 0, string.format('%d', stored), '' } end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local version = string.format('%d', math.max(stored + 1, now))
local ends = ARGV[3]
if ARGV[2] ~= '' then ends = string.format('%d', now + tonumber(ARGV[2])) end

redis.call('DEL', KEYS[1])
local fields = { 'version', version }
if ends ~= '' then
  fields[3] = 'temporary_until'
  fields[4] = ends
end
for i = 7, #ARGV do fields[#fields + 1] = ARGV[i] end
redis.call('HSET', KEYS[1], unpack(fields))
redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[6], '*', 'at', string.format('%d', now), 'version', version, 'entry', ARGV[5])
redis.call('PUBLISH', ARGV[4], KEYS[1])
return { 1, version, ends }
