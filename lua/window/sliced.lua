-- The sum of what was admitted in each slice of time: a hash, field = slice number, value = cost. Twin:
-- src/limit/window/sliced.rs.
--
-- The field `sum` packs the running total and which slices there are, so that none but the current one is read as long as
-- none has left. A slice counts whole until all of it lies outside: slice n leaves at (n + 1) * width + window.

-- A number no later than the oldest slice's, the newest's; what the slice of now holds; when the hash expires.
local oldest_slice, newest_slice, current, slices_expire_at = 0, 0, 0, 0
-- The slices that count by number, and their numbers in order, when the sum had to be worked out anew.
local resummed, numbers
-- The fields of slices that have left, or 'all'.
local left
local slice = sliced and floor(now / width)

if sliced then
  local first = floor((now - window) / width)
  local read = pcall('HMGET', window_key, 'sum', format('%d', slice))
  local sum = not read.err and read[1]
  local known, ahead = false, false
  if sum and #sum == 32 then
    used, oldest_slice, newest_slice, slices_expire_at = struct.unpack('<dddd', sum)
    current = tonumber(read[2] or 0) or -1
    local check = used + oldest_slice + newest_slice + slices_expire_at + current
    -- Numbers, in order, of what can be counted, and the slice of now no larger than all together.
    known = check - check == 0 and oldest_slice <= newest_slice and current >= 0 and current <= used and used <= 2 ^ 53
    -- A slice that lies ahead is of a time that the clock was corrected from while another policy applied. It stays, but nobody
    -- counts from the slices of now to there: a window has at most 1 000, and there may be any number between.
    ahead = known and (newest_slice > slice or newest_slice - oldest_slice > 2100)
    if known and not corrected and not ahead and used > 0 and oldest_slice < first then
      if newest_slice < first then
        used, left, current = 0, 'all', 0
      else
        left = {}
        for number = oldest_slice, first - 1 do left[#left + 1] = format('%d', number) end
        for _, units in ipairs(call('HMGET', window_key, unpack(left))) do used = used - (tonumber(units or 0) or used) end
        oldest_slice = first
        known = used > 0
      end
    end
  end
  if sum and not known then corrupt = true end
  if corrected or ahead or not known then
    local last = ahead and not corrected and NEVER or floor((corrected and now or now + US) / width)
    local size = pcall('HLEN', window_key)
    local fields = {}
    if type(size) ~= 'number' or size > 2100 then
      corrupt, size = true, -1
    elseif size > 0 then
      fields = call('HGETALL', window_key)
    end
    used, oldest_slice, newest_slice, current, slices_expire_at, left = 0, 0, 0, 0, 0, nil
    resummed, numbers = size ~= 0 and {} or nil, {}
    for i = 1, #fields, 2 do
      local number, units = tonumber(string.match(fields[i], '^%d+$')), tonumber(string.match(fields[i + 1], '^%d+$'))
      if number and units and units <= 1e15 then
        if number >= first and number <= last then
          resummed[number], numbers[#numbers + 1] = units, number
          if used == 0 then oldest_slice, newest_slice = number, number end
          used, oldest_slice, newest_slice = used + units, min(oldest_slice, number), max(newest_slice, number)
          if number == slice then current = units end
        end
      elseif fields[i] ~= 'sum' then
        corrupt = true
      end
    end
    table.sort(numbers)
  end
  if used > 0 then empty_at = (newest_slice + 1) * width + window end

  -- The wait: until as many of the oldest have left as it takes.
  local missing = used + cost - window_limit
  if cost > window_limit then
    window_wait = NEVER
  elseif missing > 0 then
    window_wait = (newest_slice + 1) * width + window - now
    local costs
    if not numbers then
      numbers = {}
      for number = oldest_slice, newest_slice do numbers[#numbers + 1] = format('%d', number) end
      costs = call('HMGET', window_key, unpack(numbers))
    end
    for i = 1, #numbers do
      missing = missing - (tonumber(costs and costs[i] or not costs and resummed[numbers[i]]) or 0)
      if missing <= 0 then
        window_wait = (numbers[i] + 1) * width + window - now
        break
      end
    end
  end
end
