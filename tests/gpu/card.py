"""What the NVIDIA driver says of a card's memory, through its management library: nvidia-smi may show none of a process in a virtual machine."""
import ctypes, time


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Card:
    def __init__(self, index=0):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        for status in (self.nvml.nvmlInit_v2(), self.nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(self.device))):
            if status != 0:
                raise SystemExit(f"card.py: NVML says {status}")

    def used_mib(self):
        memory = Memory()
        if self.nvml.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory)) != 0:
            raise SystemExit("card.py: NVML does not tell the memory")
        return memory.used / 2**20

    def settles_at(self, mib, within, seconds=10):
        """The memory once it is near what is expected, or after that time."""
        end = time.time() + seconds
        while abs(self.used_mib() - mib) > within and time.time() < end:
            time.sleep(0.05)
        return self.used_mib()
