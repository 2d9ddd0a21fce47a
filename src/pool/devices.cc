#include "pool/devices.h"
