#include "catalog/transfer.h"
