-- QUERY 1 of DCAPE, section 1: for each broker, the cheapest offer of bank1 that the other banks have
-- made a window earlier. The paper writes `window` for a length of time and `brokerName` for that of bank1.
SELECT bank1.brokerName, min(bank1.price)
FROM bank1, bank2, bank3
WHERE bank1.offerCurrency = bank2.offerCurrency
  AND bank2.offerCurrency = bank3.offerCurrency
  AND bank1.offer = bank2.offer
  AND bank2.offer = bank3.offer
  AND bank1.timestamp >= bank2.timestamp + INTERVAL 20 SECONDS
  AND bank1.timestamp >= bank3.timestamp + INTERVAL 20 SECONDS
GROUP BY bank1.brokerName
