-- Looks for overrides before anything is decided: found one, nothing is charged and what it says is the answer.
--
-- A hash that only remembers a version counts as found: whoever asks must learn that version. The answer holds for each hash its
-- fields and values in a row, or nothing where the key is of another type.

if looks > 0 then
  local found, failed, hashes = false, nil, {}
  for look = 1, looks do
    local hash = pcall('HGETALL', KEYS[key])
    key = key + 1
    if hash.err and not string.find(hash.err, 'WRONGTYPE', 1, true) then failed = hash end
    hashes[look] = not hash.err and hash
    found = found or hash.err or #hash > 0
  end
  if found then
    answers[turn] = failed or hashes
    break
  end
end
