# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: freethreading_compatible=True
"""Compiled kernels of Algorithm 2 on a line.

Groups sorted by estimate form a line; only neighbours can be the most similar pair (docs/method.md, "Only neighbours merge"),
and a pair that is more similar than both pairs beside it will be merged sooner or later whatever happens elsewhere
on the line. So there is no need to look for the smallest pair of all: walk along, and merge at every local minimum.
Every step either moves one cluster from right to left or removes one, hence linear time for any input.
"""

from libc.math cimport INFINITY, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy


cdef inline double _dissimilarity(double mean_a, double weight_a, double mean_b, double weight_b) noexcept nogil:
    # LR(a, b) = (θ_a − θ_b)² · w_a w_b / (w_a + w_b), without the cancellation of the S and Δ̃ form.
    cdef double gap = mean_b - mean_a
    return gap * gap * (weight_a * weight_b / (weight_a + weight_b))


cdef double _walk(
    double* mean, double* weight, double* edge, int64_t* last, double* inner, double* heights, Py_ssize_t n
) noexcept nogil:
    """Merge the whole line in place and return the height of the highest merge.

    `mean` and `weight` hold the n sorted clusters and are used as two stacks facing each other: the walked part is
    [0, left), the part still ahead [right, n). `edge[i]` is the dissimilarity of the walked clusters i and i + 1; those
    fall strictly from left to right, which is what makes the last one a local minimum once the next is not smaller.

    With `heights` given, the height of the merge that removes the gap between places g and g + 1 goes to heights[g];
    `last` (the last place of each cluster) and `inner` (its own height) are needed only then.
    """
    cdef Py_ssize_t left = 1, right = 1
    cdef double ahead, height, total, merged_mean, top = 0.0
    if n < 2:
        return 0.0
    while True:
        if right < n:
            ahead = _dissimilarity(mean[left - 1], weight[left - 1], mean[right], weight[right])
        elif left == 1:
            return top
        else:
            ahead = INFINITY
        if left >= 2 and edge[left - 2] <= ahead:  # on a tie the leftmost gap goes first
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
            else:  # put it back ahead: its left neighbour has to be looked at again
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


def merge_line(double[::1] mean, double[::1] weight, double[::1] heights):
    """Agglomerate one line of clusters sorted by mean; `mean` and `weight` are used up.

    Writes the height of the merge that closes the gap between places g and g + 1 to heights[g].
    """
    cdef Py_ssize_t n = mean.shape[0], i
    cdef double* edge
    cdef double* inner
    cdef int64_t* last
    if weight.shape[0] != n or heights.shape[0] != (n - 1 if n else 0):
        raise ValueError("merge_line: lengths do not match")
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
            inner[i] = 0.0
        _walk(&mean[0], &weight[0], edge, last, inner, &heights[0], n)
    free(edge)
    free(last)


def pack(double[:, ::1] normal, const double[::1] scale, double[::1] radius):
    """Turn standard normals into sortable draws that remember their group, in place.

    A draw is normal × scale with the group's number in its lowest mantissa bits. Plain sorting of the rows then
    carries the groups along, which is several times faster than an argsort and a gather; the price is a relative
    perturbation of at most groups · 2⁻⁵¹ of a random number.

    `radius` receives each row's squared length once the part that shifts all groups alike is taken out: Cochran's Q
    of the row for standard errors `scale`, and so a chi-square number on groups − 1 degrees of freedom.
    """
    cdef Py_ssize_t rows = normal.shape[0], groups = normal.shape[1], r, i
    cdef int64_t mask = 1, bits
    cdef double draw, along, length, squares
    cdef double* shift
    if scale.shape[0] != groups or radius.shape[0] != rows:
        raise ValueError("pack: shapes do not match")
    if rows == 0 or groups == 0:
        return
    shift = <double*>malloc(groups * sizeof(double))
    if shift == NULL:
        raise MemoryError
    with nogil:
        while mask < groups:
            mask <<= 1
        mask = ~(mask - 1)
        length = 0.0
        for i in range(groups):  # the unit vector along which a common shift moves the standardised draws
            shift[i] = 1.0 / scale[i]
            length += shift[i] * shift[i]
        length = sqrt(length)
        for i in range(groups):
            shift[i] /= length
        for r in range(rows):
            along = 0.0
            for i in range(groups):
                along += normal[r, i] * shift[i]
            squares = 0.0
            for i in range(groups):
                draw = normal[r, i] - along * shift[i]
                squares += draw * draw
                draw = normal[r, i] * scale[i]
                memcpy(&bits, &draw, sizeof(double))  # the compiler makes it a move; a cast would break aliasing
                bits = (bits & mask) | i
                memcpy(&normal[r, i], &bits, sizeof(double))
            radius[r] = squares
    free(shift)


def top_heights(const double[:, ::1] packed, const double[:, ::1] weight, double[::1] top):
    """Write the highest merge of every row of packed, sorted draws to `top`.

    `weight` has one row of group weights for all draws, or one for each of them.
    """
    cdef Py_ssize_t rows = packed.shape[0], groups = packed.shape[1], r, i, w
    cdef int64_t mask = 1, bits
    cdef double* mean
    cdef double* ordered
    cdef double* edge
    if weight.shape[1] != groups or (weight.shape[0] != 1 and weight.shape[0] != rows) or top.shape[0] != rows:
        raise ValueError("top_heights: shapes do not match")
    if rows == 0 or groups == 0:
        return
    mean = <double*>malloc(3 * groups * sizeof(double))
    if mean == NULL:
        raise MemoryError
    ordered = mean + groups
    edge = ordered + groups
    with nogil:
        while mask < groups:
            mask <<= 1
        mask -= 1
        for r in range(rows):
            w = r if weight.shape[0] != 1 else 0
            for i in range(groups):
                mean[i] = packed[r, i]
                memcpy(&bits, &mean[i], sizeof(double))
                ordered[i] = weight[w, bits & mask]
            top[r] = _walk(mean, ordered, edge, NULL, NULL, NULL, groups)
    free(mean)


def link(const int64_t[::1] order, const int64_t[::1] gaps, int64_t[:, ::1] merges, int64_t[::1] sizes):
    """Close the gaps one after the other and write scipy's cluster numbers and sizes.

    `order` says which group stands at each place, `gaps` in which order the gaps close. The t-th merge makes cluster
    number K + t. A cluster is known by its first and last place only, so every merge is O(1).
    """
    cdef Py_ssize_t n = order.shape[0], t
    cdef int64_t gap, first, last
    cdef int64_t* number  # of the cluster that starts or ends at a place
    cdef int64_t* other  # end of the cluster that starts here, or start of the one that ends here
    if gaps.shape[0] != n - 1 or merges.shape[0] != n - 1 or merges.shape[1] != 2 or sizes.shape[0] != n - 1:
        raise ValueError("link: lengths do not match")
    number = <int64_t*>malloc(2 * n * sizeof(int64_t))
    if number == NULL:
        raise MemoryError
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
