-- Looks for overrides before anything is decided: found one, nothing is charged and what it says is the answer.
--
-- KEYS: behind those of the decision the hashes to look at, as many as ARGV[2] says; they are taken off, so that what follows
-- sees its own alone. A hash that only remembers a version counts as found: whoever asks must learn that version.
-- Returns for each hash its fields and values in a row, or nothing where the key is of another type.

do
  local first, found, hashes = #KEYS - ARGV[2] + 1, false, {}
  for i = first, #KEYS do
    local hash = redis.pcall('HGETALL', KEYS[i])
    if hash.err and not string.find(hash.err, 'WRONGTYPE', 1, true) then return hash end
    hashes[i - first + 1] = not hash.err and hash
    found = found or hash.err or #hash > 0
    KEYS[i] = nil
  end
  if found then return hashes end
end

