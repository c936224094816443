-- Each admission with its time and cost: a sorted set, score = µs, member = sequence:cost. Twin: src/limit/window/exact.rs.
--
-- The running totals are packed in a field of the subject's hash, so that a decision whose window does not count reads no entry. What
-- lies at or before `dropped` is out already; it is removed when it must be: when the window counts, or could otherwise
-- grow beyond its limit.

-- Sum of the costs and number of the entries; a time no later than the oldest entry's, the newest's; what is out; the
-- last sequence number; when the set expires.
local total, entries, oldest, newest, dropped, sequence, window_expires_at = 0, 0, 0, 0, -NEVER, 0, 0
-- The entries that count, when the totals had to be worked out anew: member, score, member, score, …
local recounted
-- How many of the oldest are out; nothing when nobody had to know.
local out
-- Whether an entry turned out to be none of ours: then the totals are worked out anew at the next decision.
local distrusted = false
local totals = stored[4]

if exact then
  local count = pcall('ZCARD', window_key)
  if totals and #totals == 56 then
    total, entries, oldest, newest, dropped, sequence, window_expires_at = struct.unpack('<ddddddd', totals)
    local sum = total + entries + oldest + newest + dropped + sequence + window_expires_at
    -- Not a number, beyond every time, or less than 1 for each entry.
    if sum - sum ~= 0 or max(oldest, newest, total, sequence) > 2 ^ 53 or total < entries or sequence < 0 then
      corrupt = true
      total, entries, oldest, newest, dropped, sequence, window_expires_at = 0, -1, 0, 0, -NEVER, 0, 0
    end
  end
  if totals and #totals ~= 56 then corrupt = true end
  if same then dropped = max(dropped, handed_dropped) end
  if count == 0 then
    -- New, expired, deleted or evicted.
    total, entries = 0, 0
  end
  -- The hash and the set disagree (one was deleted, evicted or edited), or the clock was corrected: then what lies after
  -- `now` is dropped; or it was corrected while another kind of policy applied: then that stays.
  local ahead = dropped >= now and 2 ^ 53 or now + US
  if corrected or dropped >= now or count ~= entries then
    local read = pcall('ZRANGE', window_key, -10001, -1, 'WITHSCORES')
    if read.err then
      corrupt, read = true, {}
    end
    local first, last = max(now - window, dropped), corrected and now or ahead
    recounted = {}
    total, entries, sequence, window_expires_at = 0, 0, 0, 0
    for i = 1, #read, 2 do
      local number, units = string.match(read[i], '^(%d+):(%d+)$')
      local score = tonumber(read[i + 1])
      number, units = tonumber(number), tonumber(units)
      if not units or units < 1 or units > 1e9 or number > 1e15 then
        corrupt = true
      elseif score > first and score <= last then
        recounted[#recounted + 1] = read[i]
        recounted[#recounted + 1] = score
        if entries == 0 then oldest = score end
        newest, total, entries, sequence = score, total + units, entries + 1, max(sequence, number)
      end
    end
    dropped = now - window
  end

  if window_counts or total + cost > window_limit then
    used, out = total, 0
    local cutoff = max(now - window, dropped)
    if entries > 0 and min(oldest, newest) <= cutoff then
      if newest <= cutoff then
        used, out = 0, entries
      else
        out = call('ZCOUNT', window_key, '-inf', format('%d', cutoff))
        if total == entries then
          used = total - out
        else
          for _, member in ipairs(out > 0 and call('ZRANGE', window_key, 0, out - 1) or {}) do
            local units = tonumber(string.match(member, ':(%d+)$'))
            used, distrusted = used - (units or 0), distrusted or not units
          end
          if used < entries - out then
            used, distrusted = entries - out, true
          end
        end
        oldest = tonumber(call('ZRANGE', window_key, out, out, 'WITHSCORES')[2]) or newest
      end
    end
    if used > 0 then empty_at = newest + window end

    -- The wait: until as many of the oldest have left as it takes.
    local missing = used + cost - window_limit
    if cost > window_limit then
      window_wait = NEVER
    elseif missing > 0 and total == entries then
      local entry = recounted and { nil, recounted[2 * (out + missing)] } or call('ZRANGE', window_key, out + missing - 1, out + missing - 1, 'WITHSCORES')
      window_wait = (tonumber(entry[2]) or newest) + window - now
    elseif missing > 0 then
      window_wait = newest + window - now
      local from = out
      repeat
        local some = recounted or call('ZRANGE', window_key, from, from + 99, 'WITHSCORES')
        for i = 1, #some, 2 do
          missing = missing - (tonumber(string.match(some[i], ':(%d+)$')) or 0)
          if missing <= 0 then
            window_wait = some[i + 1] + window - now
            break
          end
        end
        from = from + 100
      until missing <= 0 or recounted or #some < 200
    end
    -- Whatever stands as an entry's time, what does not fit now does not fit now.
    if used + cost > window_limit then window_wait = max(window_wait, 1) end
  end
end
