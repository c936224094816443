-- Each admission with its time and cost: a sorted set, score = µs, member = sequence:cost. Twin: src/limit/window/exact.rs.
--
-- The running totals stand in the subject's hash, so that a decision whose window does not count reads no entry. What
-- lies at or before `exact_dropped` is out already and is removed when it must be: when the window counts, or could
-- otherwise grow beyond its limit.

local exact_total, exact_entries, exact_oldest, exact_newest, exact_dropped, exact_sequence, exact_expires
-- The entries that count, when the totals had to be worked out anew: member, score, member, score, …
local exact_listed
-- What of it is out: how many, and what the rest adds up to. Nothing when nobody needed to know.
local exact_out, exact_used

-- The most entries that any exact window holds: the largest limit, plus one entry.
local EXACT_MOST = 10001

local function exact_cost(member)
  return tonumber(string.match(member, ':(%d+)$')) or 0
end

-- Works the totals out from the entries themselves: the hash and the set disagree (one of them was deleted, evicted or
-- edited), or the clock was corrected and what lies after `latest` is dropped.
local function exact_recount(key, now, latest)
  local stored = redis.pcall('ZRANGE', key, -EXACT_MOST, -1, 'WITHSCORES')
  if stored.err then
    corrupt = true
    stored = {}
  end
  local cutoff = math.max(now - window, exact_dropped)
  exact_listed = {}
  exact_total, exact_entries, exact_oldest, exact_newest, exact_expires = 0, 0, 0, 0, 0
  for i = 1, #stored, 2 do
    local member, score = stored[i], tonumber(stored[i + 1])
    local units = exact_cost(member)
    if units > 0 and score > cutoff and score <= latest then
      exact_listed[#exact_listed + 1] = member
      exact_listed[#exact_listed + 1] = score
      if exact_entries == 0 then exact_oldest = score end
      exact_newest = score
      exact_total = exact_total + units
      exact_entries = exact_entries + 1
      exact_sequence = math.max(exact_sequence, tonumber(string.match(member, '^%d+')) or 0)
    end
  end
end

local function exact_read(key, packed, now, corrected)
  local count = redis.pcall('ZCARD', key)
  exact_total, exact_entries, exact_oldest, exact_newest, exact_dropped, exact_sequence, exact_expires = unpack_finite('<ddddddd', 7, packed)
  local known = exact_total ~= nil
  if not known then
    exact_total, exact_entries, exact_oldest, exact_newest, exact_dropped, exact_sequence, exact_expires = 0, 0, 0, 0, -NEVER, 0, 0
  end
  if corrected or exact_dropped >= now then
    -- (The second: the clock was corrected while another kind of policy applied. What lies ahead stays then.)
    exact_recount(key, now, corrected and now or NEVER)
    exact_dropped = now - window
  elseif count ~= exact_entries and not (count == 0 and exact_newest <= now - window) then
    -- An entry may lie ahead of the clock by the second that a clock may step back, no further.
    exact_recount(key, now, now + US)
  elseif count == 0 then
    exact_total, exact_entries = 0, 0
  end
end

-- `n` entries from rank `from` on, member and score in turn.
local function exact_range(key, from, n)
  if not exact_listed then return redis.call('ZRANGE', key, from, from + n - 1, 'WITHSCORES') end
  local part = {}
  for i = 2 * from + 1, math.min(2 * (from + n), #exact_listed) do part[#part + 1] = exact_listed[i] end
  return part
end

-- Finds out what is out. Nothing is written.
local function exact_settle(key, now)
  local cutoff = math.max(now - window, exact_dropped)
  exact_out, exact_used = 0, exact_total
  if exact_entries == 0 or exact_oldest > cutoff then return end
  if exact_newest <= cutoff then
    exact_out, exact_used = exact_entries, 0
    return
  end
  exact_out = redis.call('ZCOUNT', key, '-inf', string.format('%d', cutoff))
  if exact_total == exact_entries then
    exact_used = exact_total - exact_out
  elseif exact_out > 0 then
    for _, member in ipairs(redis.call('ZRANGE', key, 0, exact_out - 1)) do exact_used = exact_used - exact_cost(member) end
  end
  local oldest = redis.call('ZRANGE', key, exact_out, exact_out, 'WITHSCORES')
  exact_oldest = tonumber(oldest[2]) or exact_newest
end

-- What is used (nothing when it need not be known), the wait, and when the newest will have left.
local function exact_assess(key, now, counts)
  if not counts and exact_total + cost <= window_limit then return nil, 0, nil end
  exact_settle(key, now)
  local empty_at = exact_used > 0 and exact_newest + window or nil
  local missing = exact_used + cost - window_limit
  if missing <= 0 then return exact_used, 0, empty_at end
  if cost > window_limit then return exact_used, NEVER, empty_at end
  if exact_total == exact_entries then
    local entry = exact_range(key, exact_out + missing - 1, 1)
    return exact_used, (tonumber(entry[2]) or exact_newest) + window - now, empty_at
  end
  local from = exact_out
  while from < exact_entries do
    local entries = exact_range(key, from, 100)
    for i = 1, #entries, 2 do
      missing = missing - exact_cost(entries[i])
      if missing <= 0 then return exact_used, tonumber(entries[i + 1]) + window - now, empty_at end
    end
    from = from + 100
  end
  return exact_used, exact_newest + window - now, empty_at
end

-- After an admission: the oldest go as long as what remains is still above the limit.
local function exact_drop_surplus(key)
  local surplus = 0
  if exact_total == exact_entries then
    surplus = math.max(exact_total - window_limit - 1, 0)
    exact_total = exact_total - surplus
  else
    local entries
    repeat
      entries = redis.call('ZRANGE', key, surplus, surplus + 99)
      for _, member in ipairs(entries) do
        local units = exact_cost(member)
        if exact_total - units <= window_limit then
          entries = {}
          break
        end
        exact_total = exact_total - units
        surplus = surplus + 1
      end
    until #entries < 100
  end
  if surplus > 0 then
    redis.call('ZREMRANGEBYRANK', key, 0, surplus - 1)
    exact_entries = exact_entries - surplus
  end
end

local function exact_write(key, now, charged)
  if exact_listed then
    redis.call('UNLINK', key)
    for i = 1, #exact_listed, 1000 do
      local pairs_of = {}
      for j = i, math.min(i + 999, #exact_listed), 2 do
        pairs_of[#pairs_of + 1] = exact_listed[j + 1]
        pairs_of[#pairs_of + 1] = exact_listed[j]
      end
      redis.call('ZADD', key, unpack(pairs_of))
    end
  end
  if exact_out and exact_out > 0 then
    if exact_out == exact_entries then
      redis.call('UNLINK', key)
    else
      redis.call('ZREMRANGEBYRANK', key, 0, exact_out - 1)
    end
    exact_entries = exact_entries - exact_out
    exact_total = exact_used
  end
  exact_dropped = math.max(exact_dropped, now - window)
  if charged > 0 then
    exact_sequence = exact_sequence + 1
    redis.call('ZADD', key, now, string.format('%010d:%d', exact_sequence, charged))
    if exact_entries == 0 then
      exact_oldest, exact_newest, exact_expires = now, now, 0
    else
      exact_oldest, exact_newest = math.min(exact_oldest, now), math.max(exact_newest, now)
    end
    exact_total = exact_total + charged
    exact_entries = exact_entries + 1
    if exact_total > window_limit + 1 then exact_drop_surplus(key) end
  end
  if exact_entries > 0 then
    local expires = expiry(exact_expires, exact_newest + window, now)
    if expires ~= exact_expires then
      exact_expires = expires
      expire(key, expires, now)
    end
  end
  return struct.pack('<ddddddd', exact_total, exact_entries, exact_oldest, exact_newest, exact_dropped, exact_sequence, exact_expires)
end
