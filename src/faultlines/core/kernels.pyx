# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: freethreading_compatible=True
"""Compiled kernels: merging along a line, merging in the plane and beyond, and the same for many draws at once.

Groups sorted by estimate form a line; only neighbors can be the most similar pair (docs/method.md, "Only neighbors merge"),
and a pair that is more similar than both pairs beside it will be merged sooner or later whatever happens elsewhere
on the line. So there is no need to look for the smallest pair of all: walk along, and merge at every local minimum.
Every step either moves one cluster from right to left or removes one, hence linear time for any input.

In several dimensions, or with a test whose p does not fall with distance alone, there is no line. There every cluster
remembers its nearest neighbor; most merges touch few of these memories, so that finding all merges takes about
K² comparisons.
"""

from libc.math cimport INFINITY, asin, exp, fabs, lgamma, log, log1p, sin, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcpy


# ------------------------------------------------------------------------------------------ memory and shapes


cdef int _require(bint fits, str name) except -1:
    """Refuse arrays whose shapes do not fit each other."""
    if not fits:
        raise ValueError(f"{name}: shapes do not match")
    return 0


cdef bint _weights_fit(const double[:, ::1] weight, Py_ssize_t rows, Py_ssize_t groups):
    """Whether there is one row of weights for all rows, or one for each of them."""
    return weight.shape[1] == groups and (weight.shape[0] == 1 or weight.shape[0] == rows)


cdef double* _doubles(Py_ssize_t count) except NULL:
    """Room for `count` numbers, to be freed."""
    cdef double* room = <double*>malloc((count if count > 0 else 1) * sizeof(double))
    if room == NULL:
        raise MemoryError
    return room


cdef int64_t* _integers(Py_ssize_t count) except NULL:
    """Room for `count` whole numbers, to be freed."""
    cdef int64_t* room = <int64_t*>malloc((count if count > 0 else 1) * sizeof(int64_t))
    if room == NULL:
        raise MemoryError
    return room


# ----------------------------------------------------------------------- groups on a line: how neighbors are compared


cdef inline double _dissimilarity(double mean_a, double weight_a, double mean_b, double weight_b) noexcept nogil:
    # LR(a, b) = (θ_a − θ_b)² · w_a w_b / (w_a + w_b), without the cancellation of the S and Δ̃ form.
    cdef double gap = mean_b - mean_a
    return gap * gap * (weight_a * weight_b / (weight_a + weight_b))


# How two neighbors on a line are compared; the numbers are those of comparison.py.
cdef enum:
    NORMAL = 0  # likelihood ratio of equal means, known variances
    WITHIN = 1  # … of means at most epsilon apart
    WITHIN_RATES = 2  # … of rates at most epsilon apart, the means being on Anscombe's scale
    BINOMIAL = 3  # likelihood ratio of equal rates; the mean is a rate, the weight the number of trials
    POISSON = 4  # likelihood ratio of equal rates of counts; the weight is the exposure


cdef inline double _divergence(double x, double step, double pooled) noexcept nogil:
    # x · log(x / pooled) where x = pooled + step, without cancellation.
    return x * log1p(step / pooled) if x > 0 and pooled > 0 else 0.0


cdef inline double _clip_angle(double angle) noexcept nogil:
    return 0.0 if angle < 0 else 1.5707963267948966 if angle > 1.5707963267948966 else angle


cdef double _other_dissimilarity(int kind, double a, double weight_a, double b, double weight_b, double epsilon) noexcept nogil:
    """Dissimilarity of neighbors a ≤ b by another test than that of equal means.

    Pairs within the tolerance are all alike, at 0; among them the nearest by plain likelihood ratio LR goes first, so
    they come out as −1/LR, which keeps that order below zero.
    """
    cdef double gap = b - a, beyond, pooled, share, limit
    if kind == WITHIN or kind == WITHIN_RATES:
        if kind == WITHIN:
            beyond = gap - epsilon
        else:
            # How far b is from the farthest rate that a allows, or a from the one that b allows: the smaller.
            # Noise can carry a place beyond the ends of the scale, where the rate stays 0 or 1.
            limit = sin(_clip_angle(a)) * sin(_clip_angle(a)) + epsilon
            beyond = b - asin(sqrt(limit)) if limit < 1 else -1.0
            limit = sin(_clip_angle(b)) * sin(_clip_angle(b)) - epsilon
            share = asin(sqrt(limit)) - a if limit > 0 else -1.0
            if share < beyond:
                beyond = share
        if beyond > 0:
            return beyond * beyond * (weight_a * weight_b / (weight_a + weight_b))
        return -1.0 / (gap * gap * (weight_a * weight_b / (weight_a + weight_b)))
    share = weight_b / (weight_a + weight_b)
    pooled = a + gap * share
    beyond = weight_a * _divergence(a, -gap * share, pooled) + weight_b * _divergence(b, gap * (1 - share), pooled)
    if kind == BINOMIAL:
        beyond += weight_a * _divergence(1 - a, gap * share, 1 - pooled)
        beyond += weight_b * _divergence(1 - b, -gap * (1 - share), 1 - pooled)
    return 2 * beyond if beyond > 0 else 0.0


# ------------------------------------------------------------------------------------------- groups on a line: merging


cdef double _merge_along_line(
    double* mean, double* weight, double* edge, int64_t* last, double* inner, double* heights, Py_ssize_t n,
    int kind, double epsilon
) noexcept nogil:
    """Merge the whole line in place and return the height of the highest merge.

    `mean` and `weight` hold the n sorted clusters and are used as two stacks facing each other: the walked part is
    [0, left), the part still ahead [right, n). `edge[i]` is the dissimilarity of the walked clusters i and i + 1; those
    fall strictly from left to right, which is what makes the last one a local minimum once the next is not smaller.

    With `heights` given, the height of the merge that removes the gap between places g and g + 1 goes to heights[g];
    `last` (the last place of each cluster) and `inner` (its own height) are required_lengths only then.
    """
    cdef Py_ssize_t left = 1, right = 1
    cdef double ahead, height, total, merged_mean, top = 0.0
    if n < 2:
        return 0.0
    while True:
        if right < n:
            if kind == NORMAL:
                ahead = _dissimilarity(mean[left - 1], weight[left - 1], mean[right], weight[right])
            else:
                ahead = _other_dissimilarity(kind, mean[left - 1], weight[left - 1], mean[right], weight[right], epsilon)
        elif left == 1:
            return top
        else:
            ahead = INFINITY
        # On a tie the leftmost gap goes first. What cannot be compared (NaN) is merged too: the walk ends whatever comes.
        if left >= 2 and not edge[left - 2] > ahead:
            height = edge[left - 2]
            total = weight[left - 2] + weight[left - 1]
            # Written as a step from one mean towards the other so that equal means stay exactly equal.
            merged_mean = mean[left - 2] + (mean[left - 1] - mean[left - 2]) * (weight[left - 1] / total)
            if height > top:
                top = height
            if heights != NULL:
                # Heights never fall in exact arithmetic; this keeps it so in floating point.
                if inner[left - 2] > height:
                    height = inner[left - 2]
                if inner[left - 1] > height:
                    height = inner[left - 1]
                heights[last[left - 2]] = height
            if left == 2:  # nothing to its left: it is the new start of the walked part
                mean[0] = merged_mean
                weight[0] = total
                if heights != NULL:
                    last[0] = last[1]
                    inner[0] = height
                left = 1
            else:  # put it back ahead: its left neighbor has to be looked at again
                right -= 1
                mean[right] = merged_mean
                weight[right] = total
                if heights != NULL:
                    last[right] = last[left - 1]
                    inner[right] = height
                left -= 2
        else:
            edge[left - 1] = ahead
            if left != right:
                mean[left] = mean[right]
                weight[left] = weight[right]
                if heights != NULL:
                    last[left] = last[right]
                    inner[left] = inner[right]
            left += 1
            right += 1


def merge_line(double[::1] mean, double[::1] weight, double[::1] heights, int kind=NORMAL, double epsilon=0.0):
    """Agglomerate one line of clusters sorted by mean; `mean` and `weight` are used up.

    Writes the height of the merge that closes the gap between places g and g + 1 to heights[g]; with a tolerance, that of
    a merge within it is below zero and says only which of them goes first.
    """
    cdef Py_ssize_t n = mean.shape[0], i
    cdef double* edge
    cdef double* inner
    cdef int64_t* last
    _require(weight.shape[0] == n and heights.shape[0] == (n - 1 if n else 0), "merge_line")
    if n < 2:
        return
    edge = <double*>malloc(2 * n * sizeof(double))
    last = <int64_t*>malloc(n * sizeof(int64_t))
    if edge == NULL or last == NULL:
        free(edge)
        free(last)
        raise MemoryError
    inner = edge + n
    with nogil:
        for i in range(n):
            last[i] = i
            inner[i] = -INFINITY
        _merge_along_line(&mean[0], &weight[0], edge, last, inner, &heights[0], n, kind, epsilon)
    free(edge)
    free(last)


def top_lines(double[:, ::1] means, double[:, ::1] weights, double[::1] top, int kind, double epsilon=0.0):
    """Write the highest merge of every row of means, sorted from mask to high, to `top`; both arrays are used up."""
    cdef Py_ssize_t rows = means.shape[0], groups = means.shape[1], r
    cdef double* edge
    _require(weights.shape[0] == rows and weights.shape[1] == groups and top.shape[0] == rows, "top_lines")
    if rows == 0 or groups == 0:
        return
    edge = _doubles(groups)
    with nogil:
        for r in range(rows):
            top[r] = _merge_along_line(&means[r, 0], &weights[r, 0], edge, NULL, NULL, NULL, groups, kind, epsilon)
    free(edge)


cdef double _best_cut(const double* mean, const double* weight, Py_ssize_t n) noexcept nogil:
    """The largest likelihood ratio of all ways to cut a line in two: no tree of merges has a higher top.

    Sums run from either end to the middle of the weight, so that the rest is never the difference of two equal numbers.
    """
    cdef double total = 0.0, centre = 0.0, side = 0.0, moment = 0.0, ratio, best = 0.0
    cdef Py_ssize_t i
    for i in range(n):
        total += weight[i]
        centre += weight[i] * mean[i]
    centre /= total
    for i in range(n - 1):
        side += weight[i]
        if 2 * side > total:
            break
        moment += weight[i] * (mean[i] - centre)
        ratio = moment * moment * (total / (side * (total - side)))
        if ratio > best:
            best = ratio
    side = 0.0
    moment = 0.0
    for i in range(n - 1, 0, -1):
        side += weight[i]
        if 2 * side > total:
            break
        moment += weight[i] * (mean[i] - centre)
        ratio = moment * moment * (total / (side * (total - side)))
        if ratio > best:
            best = ratio
    return best


# ----------------------------------------------------------------- trees: numbers of clusters, and places along a line


def link_merges(const int64_t[::1] order, const int64_t[::1] gaps, int64_t[:, ::1] merges, int64_t[::1] sizes):
    """Close the gaps one after the other and write scipy's cluster numbers and sizes.

    `order` says which group stands at each place, `gaps` in which order the gaps close. The t-th merge makes cluster
    number K + t. A cluster is known by its first and last place only, so every merge is O(1).
    """
    cdef Py_ssize_t n = order.shape[0], t
    cdef int64_t gap, first, last
    cdef int64_t* number  # of the cluster that starts or ends at a place
    cdef int64_t* other  # end of the cluster that starts here, or start of the one that ends here
    _require(gaps.shape[0] == n - 1 and merges.shape[0] == n - 1, "link_merges")
    _require(merges.shape[1] == 2 and sizes.shape[0] == n - 1, "link_merges")
    number = _integers(2 * n)
    other = number + n
    with nogil:
        for t in range(n):
            number[t] = order[t]
            other[t] = t
        for t in range(n - 1):
            gap = gaps[t]
            first = other[gap]
            last = other[gap + 1]
            merges[t, 0] = number[gap] if number[gap] < number[gap + 1] else number[gap + 1]
            merges[t, 1] = number[gap + 1] if number[gap] < number[gap + 1] else number[gap]
            sizes[t] = last - first + 1
            number[first] = n + t
            number[last] = n + t
            other[first] = last
            other[last] = first
    free(number)


def lay_out_merges(const int64_t[:, ::1] merges, int64_t[::1] order, int64_t[::1] gaps):
    """Lay out a tree of merges so that every cluster is a run of neighboring places.

    `order` receives the group at each place, gaps[t] the gap that the t-th merge closes.
    """
    cdef Py_ssize_t n = order.shape[0], t, place
    cdef int64_t* first
    cdef int64_t* last
    cdef int64_t* following
    cdef int64_t* at
    _require(merges.shape[0] == n - 1 and merges.shape[1] == 2 and gaps.shape[0] == n - 1, "lay_out_merges")
    first = _integers(6 * n)
    last = first + 2 * n
    following = last + 2 * n
    at = following + n
    with nogil:
        for t in range(n):
            first[t] = t
            last[t] = t
            following[t] = -1
        for t in range(n - 1):
            following[last[merges[t, 0]]] = first[merges[t, 1]]
            gaps[t] = last[merges[t, 0]]  # the group before the gap; its place is known at the end
            first[n + t] = first[merges[t, 0]]
            last[n + t] = last[merges[t, 1]]
        place = first[2 * n - 2]
        for t in range(n):
            order[t] = place
            at[place] = t
            place = following[place]
        for t in range(n - 1):
            gaps[t] = at[gaps[t]]
    free(first)


# ---------------------------------------------------------------------------------- draws of groups with equal effects


cdef int64_t _bits_for(Py_ssize_t groups) noexcept nogil:
    """The lowest bits of a mantissa that can hold the number of a group."""
    cdef int64_t mask = 1
    while mask < groups:
        mask <<= 1
    return mask - 1


cdef inline double _with_group(double draw, int64_t mask, Py_ssize_t group) noexcept nogil:
    """A draw with its group's number in its lowest mantissa bits."""
    cdef int64_t bits
    memcpy(&bits, &draw, sizeof(double))  # the compiler makes it a move; a cast would break aliasing
    bits = (bits & ~mask) | group
    memcpy(&draw, &bits, sizeof(double))
    return draw


cdef inline Py_ssize_t _group_of(double packed, int64_t mask) noexcept nogil:
    cdef int64_t bits
    memcpy(&bits, &packed, sizeof(double))
    return <Py_ssize_t>(bits & mask)


cdef void _common_shift(const double* scale, double* shift, Py_ssize_t groups) noexcept nogil:
    """The unit vector along which a common shift moves the standardized draws."""
    cdef double length = 0.0
    cdef Py_ssize_t i
    for i in range(groups):
        shift[i] = 1.0 / scale[i]
        length += shift[i] * shift[i]
    length = sqrt(length)
    for i in range(groups):
        shift[i] /= length


cdef double _squared_length(const double* normal, const double* shift, Py_ssize_t groups) noexcept nogil:
    """Squared length of a standardized draw once its common shift is taken out: Cochran's Q."""
    cdef double along = 0.0, squares = 0.0, draw
    cdef Py_ssize_t i
    for i in range(groups):
        along += normal[i] * shift[i]
    for i in range(groups):
        draw = normal[i] - along * shift[i]
        squares += draw * draw
    return squares


def pack_draws(double[:, ::1] normal, const double[::1] scale, double[::1] radius):
    """Turn standard normals into sortable draws that remember their group, in place.

    A draw is normal × scale with the group's number in its lowest mantissa bits. Plain sorting of the rows then
    carries the groups along, which is several times faster than an argsort and a gather; the price is a relative
    perturbation of at most groups · 2⁻⁵¹ of a random number.

    `radius` receives each row's squared length once the part that shifts all groups alike is taken out: Cochran's Q
    of the row for standard errors `scale`, and so a chi-square number on groups − 1 degrees of freedom.
    """
    cdef Py_ssize_t rows = normal.shape[0], groups = normal.shape[1], r, i
    cdef int64_t mask = _bits_for(groups)
    cdef double* shift
    _require(scale.shape[0] == groups and radius.shape[0] == rows, "pack_draws")
    if rows == 0 or groups == 0:
        return
    shift = _doubles(groups)
    with nogil:
        _common_shift(&scale[0], shift, groups)
        for r in range(rows):
            radius[r] = _squared_length(&normal[r, 0], shift, groups)
            for i in range(groups):
                normal[r, i] = _with_group(normal[r, i] * scale[i], mask, i)
    free(shift)


cdef enum:
    MOST_IN_BUCKET = 256  # insertion takes the square of what falls together: beyond this NumPy's sort is faster


cdef bint _sort_by_buckets(
    double* values, double* sorted_values, int32_t* bucket, int32_t* start, Py_ssize_t n
) noexcept nogil:
    """Sort a row of numbers that are spread over their range; False, with nothing done, where too many fall together.

    As many buckets as numbers, of equal width: each number goes where its bucket begins, and insertion puts buckets in
    order. A million normal draws take 22 ns each, half of what NumPy's sort takes on this machine's processors.
    """
    cdef double lowest = values[0], highest = values[0], factor, value
    cdef Py_ssize_t i, j
    cdef int32_t place, before, total = 0
    for i in range(n):
        if values[i] < lowest:
            lowest = values[i]
        if values[i] > highest:
            highest = values[i]
    factor = (n - 1) / (highest - lowest)
    if not factor > 0 or factor == INFINITY:
        return False
    for i in range(n):
        start[i] = 0
    for i in range(n):
        place = <int32_t>((values[i] - lowest) * factor)
        bucket[i] = place
        start[place] += 1
    for i in range(n):
        before = start[i]
        if before > MOST_IN_BUCKET:
            return False
        start[i] = total
        total += before
    for i in range(n):
        place = start[bucket[i]]
        start[bucket[i]] = place + 1
        sorted_values[place] = values[i]
    for i in range(1, n):
        value = sorted_values[i]
        j = i
        while j > 0 and sorted_values[j - 1] > value:
            sorted_values[j] = sorted_values[j - 1]
            j -= 1
        sorted_values[j] = value
    memcpy(values, sorted_values, n * sizeof(double))
    return True


def sort_rows(double[:, ::1] values):
    """Sort every row in place, where numbers are spread over their range; whether that could be done for all rows.

    Rows that could not be sorted are left as they are, for NumPy.
    """
    cdef Py_ssize_t rows = values.shape[0], n = values.shape[1], r
    cdef bint done = True
    cdef double* sorted_values
    cdef int64_t* counts
    _require(n < 2147483647, "sort_rows")
    if rows == 0 or n < 2:
        return True
    sorted_values = _doubles(n)
    counts = <int64_t*>malloc(n * sizeof(int64_t))  # two columns of 32 bits
    if counts == NULL:
        free(sorted_values)
        raise MemoryError
    with nogil:
        for r in range(rows):
            if not _sort_by_buckets(&values[r, 0], sorted_values, <int32_t*>counts, <int32_t*>counts + n, n):
                done = False
    free(sorted_values)
    free(counts)
    return done


def top_heights(const double[:, ::1] packed, const double[:, ::1] weight, double[::1] top, int best=0):
    """Write the highest merge of every row of packed, sorted draws to `top`; or, with `best`, their best cut in two.

    `weight` has one row of group weights for all draws, or one for each of them.
    """
    cdef Py_ssize_t rows = packed.shape[0], groups = packed.shape[1], r, i, w
    cdef int64_t mask = _bits_for(groups), bits
    cdef double* mean
    cdef double* ordered
    cdef double* edge
    _require(_weights_fit(weight, rows, groups) and top.shape[0] == rows, "top_heights")
    if rows == 0 or groups == 0:
        return
    mean = _doubles(3 * groups)
    ordered = mean + groups
    edge = ordered + groups
    with nogil:
        for r in range(rows):
            w = r if weight.shape[0] != 1 else 0
            for i in range(groups):
                mean[i] = packed[r, i]
                memcpy(&bits, &mean[i], sizeof(double))
                ordered[i] = weight[w, bits & mask]
            top[r] = _merge_along_line(mean, ordered, edge, NULL, NULL, NULL, groups, NORMAL, 0.0) if best == 0 else _best_cut(
                mean, ordered, groups
            )
    free(mean)


def top_fractions(const double[:, ::1] normal, const double[:, ::1] scale, double[:, ::1] fraction):
    """For many experiments at once: top merge over squared length of every draw, made of the same standard normals.

    One row of `scale` and of `fraction` per experiment. Does what pack_draws, a sort and top_heights do, one draw after the other
    without leaving the core's cache; meant for some dozens of groups, where ranks are found fastest by counting.
    """
    cdef Py_ssize_t rows = normal.shape[0], groups = normal.shape[1], r, i, j, e
    cdef int64_t mask = _bits_for(groups), rank
    cdef double draw, squares, top
    cdef double* shift
    cdef double* weight
    cdef double* mean
    cdef double* ordered
    cdef double* edge
    _require(scale.shape[1] == groups and fraction.shape[0] == scale.shape[0], "top_fractions")
    _require(fraction.shape[1] == rows, "top_fractions")
    if rows == 0 or groups == 0:
        return
    shift = _doubles(5 * groups)
    weight = shift + groups
    mean = weight + groups
    ordered = mean + groups
    edge = ordered + groups
    with nogil:
        for e in range(scale.shape[0]):
            _common_shift(&scale[e, 0], shift, groups)
            for i in range(groups):
                weight[i] = 1.0 / (scale[e, i] * scale[e, i])
            for r in range(rows):
                squares = _squared_length(&normal[r, 0], shift, groups)
                for i in range(groups):
                    edge[i] = _with_group(normal[r, i] * scale[e, i], mask, i)
                for i in range(groups):
                    draw = edge[i]
                    rank = 0  # comparing with all the top_moments takes no branch that could be guessed wrong
                    for j in range(groups):
                        rank += edge[j] < draw
                    mean[rank] = draw
                    ordered[rank] = weight[i]
                top = _merge_along_line(mean, ordered, edge, NULL, NULL, NULL, groups, NORMAL, 0.0)
                fraction[e, r] = top / (squares if squares > 2.2250738585072014e-308 else 2.2250738585072014e-308)
    free(shift)


# ---------------------------------------------------------------------- the scan: the j lowest scores against the rest


def pack_scores(const double[:, ::1] effects, const double[:, ::1] weight, double[:, ::1] scores):
    """Distances from the weighted mean of each row in standard errors, sortable, with their groups in the last bits."""
    cdef Py_ssize_t rows = effects.shape[0], groups = effects.shape[1], r, i, w
    cdef int64_t mask = _bits_for(groups)
    cdef double total, centre
    _require(_weights_fit(weight, rows, groups), "pack_scores")
    _require(scores.shape[0] == rows and scores.shape[1] == groups, "pack_scores")
    with nogil:
        for r in range(rows):
            w = r if weight.shape[0] != 1 else 0
            total = 0.0
            centre = 0.0
            for i in range(groups):
                total += weight[w, i]
                centre += weight[w, i] * effects[r, i]
            centre /= total
            for i in range(groups):
                scores[r, i] = _with_group((effects[r, i] - centre) * sqrt(weight[w, i]), mask, i)


cdef void _scan_roots(
    const double* packed, const double* weight, const double* root, double* roots, double* masses, Py_ssize_t groups,
    int64_t mask
) noexcept nogil:
    """Root of the likelihood ratio of the j lowest scores against the rest, for j = 1 … groups − 1.

    `root` has the roots of the weights, `masses` room for groups numbers. Sums first, roots in a loop of their own: that
    one has no step that waits for the one before, and the compiler takes several at a time.
    """
    cdef double total = 0.0, mass = 0.0, moment = 0.0, rest, least, enough
    cdef Py_ssize_t i, g
    for i in range(groups):
        total += weight[i]
    for i in range(groups - 1):
        g = _group_of(packed[i], mask)
        mass += weight[g]
        moment += packed[i] * root[g]
        masses[i] = mass
        roots[i] = moment
    least = 1e-12 * total
    for i in range(groups - 1):
        # Where one group holds nearly all weight, what is left of it is rounding.
        rest = total - masses[i]
        enough = 1.0 if rest > least else 0.0
        rest = rest if rest > least else least
        roots[i] = enough * fabs(roots[i]) * sqrt(total / (masses[i] * rest))


cdef void _root_weights(const double* weight, double* root, Py_ssize_t groups) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(groups):
        root[i] = sqrt(weight[i])


def scan_roots(const double[:, ::1] packed, const double[:, ::1] weight, double[:, ::1] roots):
    """The roots of the scan of every row of packed, sorted scores, for j = 1 … groups − 1."""
    cdef Py_ssize_t rows = packed.shape[0], groups = packed.shape[1], r, w
    cdef int64_t mask = _bits_for(groups)
    cdef double* room
    _require(_weights_fit(weight, rows, groups), "scan_roots")
    _require(roots.shape[0] == rows and roots.shape[1] == groups - 1, "scan_roots")
    if groups < 2 or rows == 0:
        return
    room = _doubles(2 * groups)
    with nogil:
        for r in range(rows):
            w = r if weight.shape[0] != 1 else 0
            if w == r:
                _root_weights(&weight[w, 0], room, groups)
            _scan_roots(&packed[r, 0], &weight[w, 0], room, &roots[r, 0], room + groups, groups, mask)
    free(room)


def scan_peaks(
    const double[:, ::1] packed, const double[:, ::1] weight, const double[::1] mean, const double[::1] spread,
    double[::1] peak, int64_t[::1] place
):
    """The largest standardized root of every row of packed, sorted scores, and how many scores it cuts off."""
    cdef Py_ssize_t rows = packed.shape[0], groups = packed.shape[1], r, w, j
    cdef int64_t mask = _bits_for(groups)
    cdef double value
    cdef double* room
    cdef double* roots
    _require(_weights_fit(weight, rows, groups), "scan_peaks")
    _require(mean.shape[0] == groups - 1 and spread.shape[0] == groups - 1, "scan_peaks")
    _require(peak.shape[0] == rows and place.shape[0] == rows, "scan_peaks")
    room = _doubles(3 * groups)
    roots = room + 2 * groups
    with nogil:
        for r in range(rows):
            w = r if weight.shape[0] != 1 else 0
            if w == r:
                _root_weights(&weight[w, 0], room, groups)
            _scan_roots(&packed[r, 0], &weight[w, 0], room, roots, room + groups, groups, mask)
            peak[r] = -INFINITY
            place[r] = 1
            for j in range(groups - 1):
                value = (roots[j] - mean[j]) / spread[j]
                if value > peak[r]:
                    peak[r] = value
                    place[r] = j + 1
    free(room)


def scan_required_lengths(
    const double[:, ::1] packed, const double[:, ::1] weight, const double[::1] radius, const double[::1] mean,
    const double[::1] spread, double critical, double[::1] required
):
    """The squared length that the direction of each row needs for some standardized root to reach a critical value."""
    cdef Py_ssize_t rows = packed.shape[0], groups = packed.shape[1], r, w, j
    cdef int64_t mask = _bits_for(groups)
    cdef double largest, share
    cdef double* room
    cdef double* roots
    cdef double* inverse
    _require(_weights_fit(weight, rows, groups), "scan_required_lengths")
    _require(mean.shape[0] == groups - 1 and spread.shape[0] == groups - 1, "scan_required_lengths")
    _require(radius.shape[0] == rows and required.shape[0] == rows, "scan_required_lengths")
    room = _doubles(4 * groups)
    roots = room + 2 * groups
    inverse = room + 3 * groups
    with nogil:
        for j in range(groups - 1):
            share = mean[j] + critical * spread[j]
            inverse[j] = 1.0 / share if share > 0 else INFINITY
        for r in range(rows):
            w = r if weight.shape[0] != 1 else 0
            if w == r:
                _root_weights(&weight[w, 0], room, groups)
            _scan_roots(&packed[r, 0], &weight[w, 0], room, roots, room + groups, groups, mask)
            largest = 0.0
            for j in range(groups - 1):
                share = roots[j] * inverse[j]
                if share > largest:
                    largest = share
            required[r] = radius[r] / (largest * largest) if largest > 0 else INFINITY
    free(room)


# ---------------------------------------------------------------------------------- groups that do not stand on a line


# What a cluster consists of, one row of `state` per number, one column per cluster; those of comparison.py.
cdef enum:
    PLANE = 0  # d means, d weights: independent dimensions
    CORRELATED = 1  # d means, the d × d precision matrix, its inverse
    WELCH = 2  # two-sample t-test: mean, W = Σw, Σv for v = w² se², Σ v²/dof, and what estimated weights add


cdef inline double _variance_of_mean(const double* state, Py_ssize_t width, Py_ssize_t c) noexcept nogil:
    # Σv / W², and what estimated weights add to it (after Meier): 4 Σ (w/W)(1 − w/W)/(dof − 3).
    cdef double weight = state[width + c]
    return state[2 * width + c] * (1 + 4 * (state[4 * width + c] - state[5 * width + c] / weight) / weight) / (
        weight * weight
    )


cdef double _beta_continued_fraction(double a, double b, double x) noexcept nogil:
    """Continued fraction of the incomplete beta function, by the modified Lentz method."""
    cdef double c = 1.0, d = 1 - (a + b) * x / (a + 1), h, step
    cdef int m
    if fabs(d) < 1e-300:
        d = 1e-300
    d = 1 / d
    h = d
    for m in range(1, 20000):
        step = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 + step * d
        c = 1 + step / c
        if fabs(d) < 1e-300:
            d = 1e-300
        if fabs(c) < 1e-300:
            c = 1e-300
        d = 1 / d
        h *= d * c
        step = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 + step * d
        c = 1 + step / c
        if fabs(d) < 1e-300:
            d = 1e-300
        if fabs(c) < 1e-300:
            c = 1e-300
        d = 1 / d
        h *= d * c
        if fabs(d * c - 1) < 1e-15:
            break
    return h


cdef double _minus_log_t(double square, double dof) noexcept nogil:
    """−log P(|T| ≥ t) for Student's t, from t²: a continued fraction of the incomplete beta function."""
    cdef double a = dof / 2, b = 0.5, x, y, front, value
    if square <= 0:
        return 0.0
    if dof > 1e9:
        dof = 1e9
        a = dof / 2
    x = dof / (dof + square)
    y = square / (dof + square)
    # Γ(a + ½)/Γ(a) by the difference of logarithms, which cancels for large a, or by its expansion.
    front = lgamma(a + b) - lgamma(a) if a < 1e5 else log(a) / 2 - 1 / (8 * a)
    front += b * log(y) - a * log1p(square / dof) - lgamma(b)
    if x < (a + 1) / (a + b + 2):
        return -(front - log(a) + log(_beta_continued_fraction(a, b, x)))
    value = exp(front) * _beta_continued_fraction(b, a, y) / b
    return -log1p(-value) if value < 1 else 745.0


cdef inline void _dissimilarities(int kind, Py_ssize_t d, const double* state, Py_ssize_t width, Py_ssize_t start, Py_ssize_t stop,
                      Py_ssize_t c, double* out, double* scratch) noexcept nogil:
    """Dissimilarity of cluster c and each of the clusters from start to stop."""
    cdef Py_ssize_t j, k, l, m
    cdef double mean, weight, gap, other, sum_, freedom
    cdef const double* means
    cdef const double* weights
    if kind == PLANE:
        for j in range(start, stop):
            out[j] = 0.0
        for k in range(d):
            means = state + k * width
            weights = state + (d + k) * width
            mean = means[c]
            weight = weights[c]
            for j in range(start, stop):
                gap = means[j] - mean
                out[j] += gap * gap * (weight * weights[j] / (weight + weights[j]))
    elif kind == WELCH:
        mean = state[c]
        weight = _variance_of_mean(state, width, c)
        for j in range(start, stop):
            other = _variance_of_mean(state, width, j)
            sum_ = weight + other
            gap = state[j] - mean
            freedom = sum_ * sum_ / (
                weight * weight * (state[3 * width + c] / (state[2 * width + c] * state[2 * width + c]))
                + other * other * (state[3 * width + j] / (state[2 * width + j] * state[2 * width + j]))
            )
            out[j] = _minus_log_t(gap * gap / sum_, freedom)
    elif d == 2:
        # Δᵀ (V_c + V_j)⁻¹ Δ, written out; four times as fast as what follows.
        for j in range(start, stop):
            gap = state[j] - state[c]
            other = state[width + j] - state[width + c]
            mean = state[6 * width + j] + state[6 * width + c]
            sum_ = state[7 * width + j] + state[7 * width + c]
            weight = state[9 * width + j] + state[9 * width + c]
            out[j] = (gap * gap * weight - 2 * gap * other * sum_ + other * other * mean) / (mean * weight - sum_ * sum_)
    else:
        # Δᵀ (V_c + V_j)⁻¹ Δ by Cholesky: with V_c + V_j = L Lᵀ it is the squared length of L⁻¹ Δ.
        for j in range(start, stop):
            sum_ = 0.0
            for k in range(d):
                gap = state[k * width + j] - state[k * width + c]
                for l in range(k + 1):
                    other = (state[(d + d * d + k * d + l) * width + j] + state[(d + d * d + k * d + l) * width + c])
                    for m in range(l):
                        other -= scratch[k * d + m] * scratch[l * d + m]
                    if l < k:
                        scratch[k * d + l] = other / scratch[l * d + l]
                    else:
                        scratch[k * d + k] = sqrt(other)
                for l in range(k):
                    gap -= scratch[k * d + l] * scratch[d * d + l]
                gap /= scratch[k * d + k]
                scratch[d * d + k] = gap
                sum_ += gap * gap
            out[j] = sum_


cdef void _merge_into(int kind, Py_ssize_t d, double* state, Py_ssize_t width, Py_ssize_t a, Py_ssize_t b,
                double* scratch) noexcept nogil:
    """Put the merger of clusters a and b into the place of b."""
    cdef Py_ssize_t k, l, m
    cdef double weight_a, weight_b, sum_
    if kind == PLANE or kind == WELCH:
        for k in range(d):
            weight_a = state[(d + k) * width + a]
            weight_b = state[(d + k) * width + b]
            state[k * width + b] += (state[k * width + a] - state[k * width + b]) * (weight_a / (weight_a + weight_b))
            state[(d + k) * width + b] = weight_a + weight_b
        if kind == WELCH:
            for k in range(2, 6):
                state[k * width + b] += state[k * width + a]
        return
    # m_b + V (W_a (m_a − m_b)) with V = (W_a + W_b)⁻¹, from its Cholesky factor L: V = L⁻ᵀ L⁻¹.
    for k in range(d):
        sum_ = 0.0
        for l in range(d):
            sum_ += state[(d + k * d + l) * width + a] * (state[l * width + a] - state[l * width + b])
        scratch[2 * d * d + k] = sum_
    for k in range(d):
        for l in range(d):
            state[(d + k * d + l) * width + b] += state[(d + k * d + l) * width + a]
    for k in range(d):  # L in scratch[0 … d²)
        for l in range(k + 1):
            sum_ = state[(d + k * d + l) * width + b]
            for m in range(l):
                sum_ -= scratch[k * d + m] * scratch[l * d + m]
            scratch[k * d + l] = sum_ / scratch[l * d + l] if l < k else sqrt(sum_)
    for k in range(d):  # L⁻¹ in scratch[d² … 2d²)
        for l in range(d):
            if l > k:
                scratch[d * d + k * d + l] = 0.0
            else:
                sum_ = 1.0 if l == k else 0.0
                for m in range(l, k):
                    sum_ -= scratch[k * d + m] * scratch[d * d + m * d + l]
                scratch[d * d + k * d + l] = sum_ / scratch[k * d + k]
    for k in range(d):
        for l in range(d):
            sum_ = 0.0
            for m in range(k if k > l else l, d):
                sum_ += scratch[d * d + m * d + k] * scratch[d * d + m * d + l]
            state[(d + d * d + k * d + l) * width + b] = sum_
    for k in range(d):
        sum_ = 0.0
        for l in range(d):
            sum_ += state[(d + d * d + k * d + l) * width + b] * scratch[2 * d * d + l]
        state[k * width + b] += sum_


cdef double _merge_all(int kind, Py_ssize_t d, Py_ssize_t rows, double* state, Py_ssize_t width, double* near,
                       double* out, double* scratch, int64_t* nearest, int64_t* number, int64_t* merges,
                       double* heights) noexcept nogil:
    """Merge the most similar pair again and again; return the highest merge there was.

    `near[i]` is the distance of cluster i to the nearest cluster after it, `nearest[i]` which that is. When that one is
    merged away the memory goes stale (−1), yet its distance stays a lower bound, for every new cluster is compared
    with it; it is looked up again only when it comes up as the smallest of all. Clusters that are gone are cleared out
    whenever half of them are.
    """
    cdef Py_ssize_t n = width, i, j, a, b, alive = width, k
    cdef int64_t step = 0
    cdef double least, top = 0.0
    for i in range(n):
        near[i] = INFINITY
        nearest[i] = -1
        number[i] = i
        if i + 1 < n:
            _dissimilarities(kind, d, state, width, i + 1, n, i, out, scratch)
            for j in range(i + 1, n):
                if out[j] < near[i]:
                    near[i] = out[j]
                    nearest[i] = j
    while alive > 1:
        while True:
            least = INFINITY
            a = -1
            for i in range(n):
                if near[i] < least:
                    least = near[i]
                    a = i
            if a < 0:  # distances beyond all numbers: whichever two come first
                for i in range(n):
                    if number[i] >= 0:
                        if a < 0:
                            a = i
                        else:
                            nearest[a] = i
                            break
            if nearest[a] >= 0:
                break
            near[a] = INFINITY
            _dissimilarities(kind, d, state, width, a + 1, n, a, out, scratch)
            for j in range(a + 1, n):
                if number[j] >= 0 and out[j] < near[a]:
                    near[a] = out[j]
                    nearest[a] = j
        b = nearest[a]
        if least > top:
            top = least
        if merges != NULL:
            i = a if state[a] <= state[b] else b  # the lower one on the left
            merges[2 * step] = number[i]
            merges[2 * step + 1] = number[a + b - i]
            heights[step] = least
        _merge_into(kind, d, state, width, a, b, scratch)
        number[a] = -1
        near[a] = INFINITY
        number[b] = width + step
        step += 1
        alive -= 1
        if 2 * alive < n and n > 8:
            j = 0
            for i in range(n):  # what pointed at a cluster points at its new place
                out[i] = j
                if number[i] >= 0:
                    j += 1
            for i in range(n):
                if number[i] >= 0:
                    j = <Py_ssize_t>out[i]
                    for k in range(rows):
                        state[k * width + j] = state[k * width + i]
                    near[j] = near[i]
                    number[j] = number[i]
                    # A memory of a or b is stale in any case and will be found so below.
                    nearest[j] = -1 if nearest[i] < 0 or nearest[i] == a or nearest[i] == b else <int64_t>out[nearest[i]]
            b = <Py_ssize_t>out[b]
            n = alive
            a = -2
        near[b] = INFINITY
        nearest[b] = -1
        _dissimilarities(kind, d, state, width, 0, n, b, out, scratch)
        for j in range(b):
            if number[j] < 0:
                continue
            if out[j] < near[j]:
                near[j] = out[j]
                nearest[j] = b
            elif nearest[j] == a or nearest[j] == b:
                nearest[j] = -1
        for j in range(b + 1, n):
            if number[j] >= 0 and out[j] < near[b]:
                near[b] = out[j]
                nearest[b] = j
    return top


cdef _merge_blocks(int kind, double* state, Py_ssize_t blocks, Py_ssize_t rows, Py_ssize_t width, int64_t* merges,
           double* heights, double* top):
    cdef Py_ssize_t r, d
    cdef double* near
    cdef int64_t* nearest
    cdef double highest
    d = rows // 2 if kind == PLANE else 1
    if kind == CORRELATED:
        while d + 2 * d * d < rows:
            d += 1
    if rows != (2 * d if kind == PLANE else 6 if kind == WELCH else d + 2 * d * d):
        raise ValueError("merge_plane: state has the wrong number of rows")
    near = <double*>malloc((2 * width + 2 * d * d + d) * sizeof(double))
    nearest = <int64_t*>malloc(2 * width * sizeof(int64_t))
    if near == NULL or nearest == NULL:
        free(near)
        free(nearest)
        raise MemoryError
    with nogil:
        for r in range(blocks):
            highest = _merge_all(kind, d, rows, state + r * rows * width, width, near, near + width, near + 2 * width,
                                 nearest, nearest + width, merges, heights)
            if top != NULL:
                top[r] = highest
    free(near)
    free(nearest)


def merge_plane(int kind, double[:, ::1] state, int64_t[:, ::1] merges, double[::1] heights):
    """Agglomerate clusters that do not stand on a line; `state` is used up.

    Writes the two clusters of every merge in scipy's numbering, the one with the lower first mean first, and heights
    as they come: in several dimensions they can fall.
    """
    cdef Py_ssize_t width = state.shape[1]
    _require(merges.shape[0] == width - 1 and merges.shape[1] == 2 and heights.shape[0] == width - 1, "merge_plane")
    if width < 2:
        return
    _merge_blocks(kind, &state[0, 0], 1, state.shape[0], width, &merges[0, 0], &heights[0], NULL)


def top_plane(int kind, double[:, :, ::1] state, double[::1] top):
    """Write the highest merge of every block of `state` to `top`; `state` is used up."""
    _require(top.shape[0] == state.shape[0], "top_plane")
    if state.shape[0] == 0:
        return
    _merge_blocks(kind, &state[0, 0, 0], state.shape[0], state.shape[1], state.shape[2], NULL, NULL, &top[0])


# ----------------------------------------------------------------------------------------------- clusters as a mixture


def fit_mixture(
    const double[::1] theta, const double[::1] weight, double[::1] level, double[::1] share, double[:, ::1] posterior,
    int free_shares, int rounds, double enough
):
    """Levels and shares of a mixture with known precisions by EM, from where they are; its log-likelihood.

    The log-likelihood leaves out what does not depend on levels and shares. Shares are kept off zero by a tenth of a group.
    """
    cdef Py_ssize_t groups = theta.shape[0], count = level.shape[0], i, j, step
    cdef double likelihood = -INFINITY, before, largest, total, value
    cdef double* sums
    _require(weight.shape[0] == groups and share.shape[0] == count, "fit_mixture")
    _require(posterior.shape[0] == groups and posterior.shape[1] == count, "fit_mixture")
    sums = _doubles(4 * count)
    with nogil:
        for step in range(rounds):
            before = likelihood
            likelihood = 0.0
            for j in range(count):
                sums[j] = 0.0
                sums[count + j] = 0.0
                sums[2 * count + j] = 0.0
                sums[3 * count + j] = log(share[j])
            for i in range(groups):
                largest = -INFINITY
                for j in range(count):
                    value = theta[i] - level[j]
                    value = sums[3 * count + j] - 0.5 * weight[i] * value * value
                    posterior[i, j] = value
                    if value > largest:
                        largest = value
                total = 0.0
                for j in range(count):
                    # What is a million million times less likely is not worth its exponential.
                    posterior[i, j] = exp(posterior[i, j] - largest) if posterior[i, j] - largest > -30.0 else 0.0
                    total += posterior[i, j]
                likelihood += largest + log(total)
                for j in range(count):
                    posterior[i, j] /= total
                    sums[j] += posterior[i, j]
                    sums[count + j] += posterior[i, j] * weight[i]
                    sums[2 * count + j] += posterior[i, j] * weight[i] * theta[i]
            if likelihood - before < enough:
                break
            for j in range(count):
                if free_shares:
                    share[j] = (sums[j] + 0.1) / (groups + 0.1 * count)
                if sums[count + j] > 0:
                    level[j] = sums[2 * count + j] / sums[count + j]
    free(sums)
    return likelihood


def assign_nearest(
    const double[::1] theta, const double[::1] weight, const double[::1] centre, const double[::1] bonus,
    int64_t[::1] labels
):
    """Put every group into the cluster with the least weight · (theta − centre)² − bonus; how many labels changed."""
    cdef Py_ssize_t groups = theta.shape[0], count = centre.shape[0], i, j, nearest, changed = 0
    cdef double least, distance
    _require(weight.shape[0] == groups and labels.shape[0] == groups and bonus.shape[0] == count, "assign_nearest")
    with nogil:
        for i in range(groups):
            least = INFINITY
            nearest = 0
            for j in range(count):
                distance = theta[i] - centre[j]
                distance = weight[i] * (distance * distance) - bonus[j]
                if distance < least:
                    least = distance
                    nearest = j
            changed += labels[i] != nearest
            labels[i] = nearest
    return changed


# --------------------------------------------------------------- draws of some dozens of groups, in a core's own cache


cdef inline void _sort_by_counting(const double* values, double* ranked, Py_ssize_t groups) noexcept nogil:
    """Sort some dozens of different numbers by counting: comparing with all top_moments takes no branch to guess wrong."""
    cdef Py_ssize_t i, j
    cdef int64_t rank
    cdef double value
    for i in range(groups):
        value = values[i]
        rank = 0
        for j in range(groups):
            rank += values[j] < value
        ranked[rank] = value


cdef int _compare_doubles(const void* a, const void* b) noexcept nogil:
    cdef double x = (<const double*>a)[0], y = (<const double*>b)[0]
    return (x > y) - (x < y)


cdef double _draw_few_groups(
    const double* normal, const double* root, const double* weight, double total, double* scores, double* packed,
    double* edge, Py_ssize_t groups, int64_t mask
) noexcept nogil:
    """Top merge of one draw of some dozens of groups; its sorted scores go to `scores`.

    Does what pack_draws, pack_scores, two sorts and top_heights do, in the core's own cache. `edge` has room for 3 × groups.
    """
    cdef double* mean = edge + groups
    cdef double* ordered = mean + groups
    cdef double centre = 0.0
    cdef Py_ssize_t i
    for i in range(groups):
        centre += root[i] * normal[i]
        packed[i] = _with_group(normal[i] / root[i], mask, i)
    centre /= total
    _sort_by_counting(packed, mean, groups)
    for i in range(groups):
        ordered[i] = weight[_group_of(mean[i], mask)]
        packed[i] = _with_group(normal[i] - centre * root[i], mask, i)
    _sort_by_counting(packed, scores, groups)
    return _merge_along_line(mean, ordered, edge, NULL, NULL, NULL, groups, NORMAL, 0.0)


cdef double _prepare_scales(const double* scale, double* root, double* weight, double* shift, Py_ssize_t groups) noexcept nogil:
    cdef double total = 0.0
    cdef Py_ssize_t i
    _common_shift(scale, shift, groups)
    for i in range(groups):
        root[i] = 1.0 / scale[i]
        weight[i] = root[i] * root[i]
        total += weight[i]
    return total


def draw_few_groups(
    const double[:, ::1] normal, const double[::1] scale, double[::1] top, double[:, ::1] scores, double[::1] radius
):
    """Top merges, sorted scores and squared lengths of draws of some dozens of groups, in one pass."""
    cdef Py_ssize_t rows = normal.shape[0], groups = normal.shape[1], r
    cdef int64_t mask = _bits_for(groups)
    cdef double total
    cdef double* room
    _require(scale.shape[0] == groups and top.shape[0] == rows, "draw_few_groups")
    _require(scores.shape[0] == rows and scores.shape[1] == groups, "draw_few_groups")
    _require(radius.shape[0] == rows, "draw_few_groups")
    room = _doubles(7 * groups)
    with nogil:
        total = _prepare_scales(&scale[0], room, room + groups, room + 2 * groups, groups)
        for r in range(rows):
            radius[r] = _squared_length(&normal[r, 0], room + 2 * groups, groups)
            top[r] = _draw_few_groups(
                &normal[r, 0], room, room + groups, total, &scores[r, 0], room + 3 * groups, room + 4 * groups, groups, mask
            )
    free(room)


cdef void _null_moments_few(
    const double* normal, Py_ssize_t rows, const double* root, const double* weight, double total, Py_ssize_t groups,
    double tail, double* roots, double* tops, double* scratch, double* moments
) noexcept nogil:
    """Mean and spread of the statistics of some dozens of groups with equal effects.

    `moments` receives the mean root of the scan for every j, then its spread, then mean, spread and a high quantile of
    the root of the top merge, and that quantile of the largest standardized root of the scan. `roots` has room for
    rows × groups numbers, `scratch` for 6 × groups.
    """
    cdef Py_ssize_t r, j, count = groups - 1, place = <Py_ssize_t>(tail * rows)
    cdef int64_t mask = _bits_for(groups)
    cdef double value, sums = 0.0, squares = 0.0
    cdef double* spread = moments + count
    cdef double* top_moments = spread + count
    cdef double* scores = scratch
    cdef double* masses = scratch + groups
    cdef double* own
    if place > rows - 1:
        place = rows - 1
    for j in range(2 * count):
        moments[j] = 0.0
    for r in range(rows):
        own = roots + r * groups
        value = _draw_few_groups(
            normal + r * groups, root, weight, total, scores, masses, scratch + 2 * groups, groups, mask
        )
        tops[r] = sqrt(value)
        sums += tops[r]
        _scan_roots(scores, weight, root, own, masses, groups, mask)
        for j in range(count):
            moments[j] += own[j]
            spread[j] += own[j] * own[j]
    for j in range(count):
        moments[j] /= rows
        value = spread[j] / rows - moments[j] * moments[j]
        if value < 1e-12 * moments[j] * moments[j]:
            value = 1e-12 * moments[j] * moments[j]
        spread[j] = sqrt(value + 1e-300)
    sums /= rows
    for r in range(rows):
        squares += (tops[r] - sums) * (tops[r] - sums)
    top_moments[0] = sums
    top_moments[1] = sqrt(squares / rows)
    if top_moments[1] < 1e-6 * sums:
        top_moments[1] = 1e-6 * sums
    if top_moments[1] < 1e-300:
        top_moments[1] = 1e-300
    qsort(tops, rows, sizeof(double), _compare_doubles)
    top_moments[2] = tops[place]
    for r in range(rows):
        own = roots + r * groups
        tops[r] = -INFINITY
        for j in range(count):
            value = (own[j] - moments[j]) / spread[j]
            if value > tops[r]:
                tops[r] = value
    qsort(tops, rows, sizeof(double), _compare_doubles)
    top_moments[3] = tops[place]


def null_moments_few(const double[:, ::1] normal, const double[:, ::1] scale, double tail, double[:, ::1] moments):
    """Mean and spread of the statistics of some dozens of groups with equal effects, one row of scales after the other."""
    cdef Py_ssize_t rows = normal.shape[0], groups = normal.shape[1], e
    cdef double total
    cdef double* root
    cdef double* weight
    cdef double* shift
    cdef double* scratch
    cdef double* tops
    _require(scale.shape[1] == groups and moments.shape[0] == scale.shape[0], "null_moments_few")
    _require(moments.shape[1] == 2 * groups + 2, "null_moments_few")
    root = _doubles(rows * (groups + 1) + 9 * groups)
    weight = root + groups
    shift = weight + groups
    scratch = shift + groups
    tops = scratch + 6 * groups
    with nogil:
        for e in range(scale.shape[0]):
            total = _prepare_scales(&scale[e, 0], root, weight, shift, groups)
            _null_moments_few(
                &normal[0, 0], rows, root, weight, total, groups, tail, tops + rows, tops, scratch, &moments[e, 0]
            )
    free(root)


def required_lengths_few(
    const double[:, ::1] normal, const double[:, ::1] theta, const double[:, ::1] scale, const double[:, ::1] moments,
    const double[::1] length, double[:, ::1] required_lengths
):
    """The squared length that each direction of noise needs for a joint statistic as large as that of the effects.

    One row for each row of effects; its first number is the squared length of the effects themselves. `length` has the
    mean of a length, its spread, and a high quantile in units of both; `moments` is what null_moments_few found. Effects
    are in the units of `scale`.
    """
    cdef Py_ssize_t rows = normal.shape[0], groups = normal.shape[1], count = groups - 1, e, i, r, j
    cdef int64_t mask = _bits_for(groups)
    cdef double total, critical, value, stretch, length_stretch, top, required, limit, radius, high, largest
    cdef const double* mean
    cdef const double* spread
    cdef const double* top_moments
    cdef double* root
    cdef double* weight
    cdef double* shift
    cdef double* draw
    cdef double* scores
    cdef double* roots
    cdef double* inverse
    cdef double* masses
    cdef double* scratch
    _require(theta.shape[1] == groups and scale.shape[1] == groups, "required_lengths_few")
    _require(moments.shape[1] == 2 * groups + 2 and length.shape[0] == 3, "required_lengths_few")
    _require(theta.shape[0] == scale.shape[0] and theta.shape[0] == moments.shape[0], "required_lengths_few")
    _require(required_lengths.shape[0] == theta.shape[0] and required_lengths.shape[1] == rows + 1, "required_lengths_few")
    root = _doubles(11 * groups)
    weight = root + groups
    shift = weight + groups
    draw = shift + groups
    scores = draw + groups
    roots = scores + groups
    inverse = roots + groups
    masses = inverse + groups
    scratch = masses + groups
    with nogil:
        for e in range(theta.shape[0]):
            mean = &moments[e, 0]
            spread = mean + count
            top_moments = spread + count
            total = _prepare_scales(&scale[e, 0], root, weight, shift, groups)
            high = top_moments[3] if top_moments[3] > 0.1 else 0.1
            value = (top_moments[2] - top_moments[0]) / top_moments[1]
            stretch = high / (value if value > 0.1 else 0.1)
            length_stretch = high / length[2]
            # The effects are one more draw: in units of their standard errors.
            for i in range(groups):
                draw[i] = theta[e, i] * root[i]
            radius = _squared_length(draw, shift, groups)
            top = _draw_few_groups(draw, root, weight, total, scores, masses, scratch, groups, mask)
            _scan_roots(scores, weight, root, roots, masses, groups, mask)
            critical = stretch * (sqrt(top) - top_moments[0]) / top_moments[1]
            value = length_stretch * (sqrt(radius) - length[0]) / length[1]
            critical = value if value > critical else critical
            for j in range(count):
                value = (roots[j] - mean[j]) / spread[j]
                critical = value if value > critical else critical
            required_lengths[e, 0] = radius
            top = top_moments[0] + critical / stretch * top_moments[1]
            top = top * top
            limit = length[0] + critical / length_stretch * length[1]
            limit = limit * limit if limit > 0 else 0.0
            for j in range(count):
                value = mean[j] + critical * spread[j]
                inverse[j] = 1.0 / value if value > 0 else INFINITY
            for r in range(rows):
                radius = _squared_length(&normal[r, 0], shift, groups)
                value = _draw_few_groups(&normal[r, 0], root, weight, total, scores, masses, scratch, groups, mask)
                _scan_roots(scores, weight, root, roots, masses, groups, mask)
                largest = 0.0
                for j in range(count):
                    required = roots[j] * inverse[j]
                    largest = required if required > largest else largest
                required = radius / (largest * largest) if largest > 0 else INFINITY
                value = top * radius / value if value > 0 else INFINITY
                required = value if value < required else required
                required_lengths[e, r + 1] = limit if limit < required else required
    free(root)
