module recordmill/fault_proxy

go 1.21
