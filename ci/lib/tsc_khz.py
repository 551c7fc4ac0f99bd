"""Prints the frequency of this machine's time stamp counter in kHz."""

import ctypes
import mmap
import time

# rdtsc; shl rdx, 32; or rax, rdx; ret
RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")
SECONDS = 0.1


def main():
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(RDTSC)
    rdtsc = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(page)))

    def read():
        """Returns both clocks from the quickest of many readings, which nothing interrupted."""
        readings = []
        for _ in range(200):
            before = time.monotonic_ns()
            ticks = rdtsc()
            after = time.monotonic_ns()
            readings.append((after - before, (before + after) / 2, ticks))
        return min(readings)[1:]

    start_time, start_ticks = read()
    time.sleep(SECONDS)
    end_time, end_ticks = read()
    print(round((end_ticks - start_ticks) / (end_time - start_time) * 1e6))


main()
