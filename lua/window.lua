-- Which limits count, and what every kind of window answers. Twin: src/limit/window.rs.

local bucket_counts = algorithm == TOKEN_BUCKET or (algorithm == HYBRID and not (is_open and while_open_window))
local window_counts = algorithm == SLIDING_WINDOW or (algorithm == HYBRID and is_open)
-- Sum of the costs that count (worked out when somebody needs it), how long until the cost fits, when the newest will have left.
local used, window_wait, empty_at = 0, 0, nil
