-- Writes the exact window. Twin: `write` in src/limit/window/exact.rs.

-- Numbers given to a command as they are become text with %.17g, which costs more than this one does for both its uses.
local now_text = format('%d', now)
local totals_changed = false
if totals and #totals == 56 and same then
  -- What went out of it while a mirror answered, though it may not be this decision's window.
  local was = struct.unpack('<d', totals, 33)
  totals_changed = true
  totals = string.sub(totals, 1, 32) .. struct.pack('<d', max(was, handed_dropped)) .. string.sub(totals, 41)
end
if exact and cost > 0 then
  if recounted then
    call('UNLINK', window_key)
    for i = 1, #recounted, 2000 do
      local some = {}
      for j = i, min(i + 1999, #recounted), 2 do
        some[#some + 1] = recounted[j + 1]
        some[#some + 1] = recounted[j]
      end
      call('ZADD', window_key, unpack(some))
    end
  end
  if out and out > 0 then
    if out == entries then
      call('UNLINK', window_key)
    else
      call('ZREMRANGEBYRANK', window_key, 0, out - 1)
    end
    total, entries = used, entries - out
  end
  dropped = max(dropped, now - window)

  if charged > 0 then
    if entries == 0 then oldest, newest, window_expires_at = now, now, 0 end
    oldest, newest, total, entries, sequence = min(oldest, now), max(newest, now), total + charged, entries + 1, sequence + 1
    call('ZADD', window_key, now_text, format('%010d:%d', sequence, charged))

    -- The oldest go as long as what remains is still above the limit: they can decide nothing.
    local surplus = 0
    if total > window_limit + 1 and total == entries then
      surplus = total - window_limit - 1
      total = window_limit + 1
    elseif total > window_limit + 1 then
      repeat
        local some = call('ZRANGE', window_key, surplus, surplus + 99)
        for _, member in ipairs(some) do
          local units = tonumber(string.match(member, ':(%d+)$')) or 0
          if total - units <= window_limit then
            some = {}
            break
          end
          total, surplus = total - units, surplus + 1
        end
      until #some < 100
    end
    if surplus > 0 then
      call('ZREMRANGEBYRANK', window_key, 0, surplus - 1)
      entries = entries - surplus
    end
  end

  if entries > 0 then
    local least = newest + window + EXPIRY_MARGIN
    local spare = EXPIRY_MARGIN + floor((newest + window - now) / 4)
    if window_expires_at < least or window_expires_at > least + 4 * spare then
      window_expires_at = least + spare
      call('PEXPIRE', window_key, format('%d', ceil((window_expires_at - now) / 1000)))
    end
  end
  if distrusted then
    corrupt, entries = true, -1
  end
  totals_changed = true
  totals = struct.pack('<ddddddd', total, entries, oldest, newest, dropped, sequence, window_expires_at)
end
