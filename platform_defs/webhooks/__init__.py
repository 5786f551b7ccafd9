"""Webhooks for any system: deliveries as rows, attempts with retries, secrets, signing, and the check of addresses."""
