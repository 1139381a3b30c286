"""Print how full the bins are, in percent, over forty fixed lists of items: higher is better."""

from packing import CAPACITY, items, pack

lists = [items(seed) for seed in range(40)]
volume = sum(sum(each) for each in lists)
bins = sum(len(pack(each)) for each in lists)
print(f"score: {100 * volume / (bins * CAPACITY):.3f}")
