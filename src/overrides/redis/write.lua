-- One change of an override: compare, write all fields, append to the audit, tell everybody.
--
-- KEYS[1] the override, a hash. KEYS[2] its audit, a stream.
-- ARGV[1] the version that must be there. ARGV[2] how long the temporary part lasts, µs ('' : as said in ARGV[3]).
-- ARGV[3] when it ends, µs ('' : no temporary part). ARGV[4] the time before which nothing is written, µs ('' : none).
-- ARGV[5] the channel. ARGV[6] the audit entry, JSON. ARGV[7] entries kept. ARGV[8…] fields and values.
-- Returns {'written', version, until}, {'stale', the version that is there, ''} or {'early', the version that is there, ''}.

-- What counts as a version is the same here as where overrides are read: else nobody could ever name the one that is there.
local text = redis.pcall('HGET', KEYS[1], 'version')
local stored = type(text) == 'string' and string.match(text, '^%d+$') and tonumber(text) or 0
if stored >= 2 ^ 53 then stored = 0 end
if tonumber(ARGV[1]) ~= stored then return { 'stale', string.format('%d', stored), '' } end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if ARGV[4] ~= '' and now < tonumber(ARGV[4]) then return { 'early', string.format('%d', stored), '' } end
local version = string.format('%d', math.max(stored + 1, now))
local ends = ARGV[3]
if ARGV[2] ~= '' then ends = string.format('%d', now + tonumber(ARGV[2])) end

redis.call('DEL', KEYS[1])
local fields = { 'version', version }
if ends ~= '' then
  fields[3] = 'temporary_until'
  fields[4] = ends
end
for i = 8, #ARGV do fields[#fields + 1] = ARGV[i] end
redis.call('HSET', KEYS[1], unpack(fields))
redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[7], '*', 'at', string.format('%d', now), 'version', version, 'entry', ARGV[6])
redis.call('PUBLISH', ARGV[5], KEYS[1])
return { 'written', version, ends }
